-- +goose Up

-- What handler types keep besides runs, such as the assignment of a cluster. A version is never there twice.
create table documents (
    kind    text    not null,
    name    text    not null,
    version integer not null,
    value   blob    not null,
    changed integer not null,
    node    integer not null, -- that wrote it; 0 for none
    primary key (kind, name)
) strict, without rowid;
