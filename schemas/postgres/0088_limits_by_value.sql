-- +goose Up
-- procaas: works with 86

-- The limits that hold for each value, such as each customer. Whoever answers requests locks the row of the limit.
create table limits_by_value (
    path text   collate "C" not null primary key, -- of the handler
    held bigint not null, -- rows of its values
    away bigint not null  -- when the next value asks again that finds no room; nanoseconds since 1970, as below
) with (fillfactor = 10);

-- One row for each value whose bucket is not full, or for which runs wait.
create table limit_buckets (
    path  text   collate "C" not null,
    value bytea  not null, -- a digest
    due   bigint not null, -- when the bucket is full again
    away  bigint not null, -- when the next run may come back
    step  bigint not null, -- in which one token comes back
    until bigint not null, -- when the row no longer counts
    primary key (path, value)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
create index limit_buckets_until on limit_buckets (path, until);
