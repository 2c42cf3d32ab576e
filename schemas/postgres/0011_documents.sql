-- +goose Up

-- What handler types keep besides runs, such as the assignment of a cluster. A version is never there twice.
create table documents (
    kind    text collate "C" not null,
    name    text collate "C" not null,
    version bigint           not null,
    value   bytea            not null,
    changed timestamptz      not null,
    node    bigint           not null, -- that wrote it; 0 for none
    primary key (kind, name)
) with (fillfactor = 50);
