-- +goose Up
-- procaas: works with 86

-- The limits that hold for each value, such as each customer.
create table limits_by_value (
    path text    not null primary key, -- of the handler
    held integer not null, -- rows of its values
    away integer not null  -- when the next value asks again that finds no room; nanoseconds since 1970, as below
) strict, without rowid;

-- One row for each value whose bucket is not full, or for which runs wait.
create table limit_buckets (
    path  text    not null,
    value blob    not null, -- a digest
    due   integer not null, -- when the bucket is full again
    away  integer not null, -- when the next run may come back
    step  integer not null, -- in which one token comes back
    until integer not null, -- when the row no longer counts
    primary key (path, value)
) strict, without rowid;
create index limit_buckets_until on limit_buckets (path, until);
