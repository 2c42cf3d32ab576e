-- +goose Up

-- When a shard was last told to drain: each request moves its keys again, also those that were moved before on that day.
alter table shards add column drain_asked timestamptz;
