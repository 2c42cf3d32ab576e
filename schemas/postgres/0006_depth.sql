-- +goose Up

-- How much waits, as one node has counted it for all; the row is the lock of those who count.
create table depth (
    counted timestamptz not null, -- or is being counted since
    took    bigint      not null, -- microseconds
    waiting bigint      not null,
    oldest  timestamptz
) with (fillfactor = 10);
insert into depth values ('epoch', 0, 0, null);
