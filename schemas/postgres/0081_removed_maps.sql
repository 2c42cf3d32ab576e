-- +goose Up

-- How to reach the shards of a map, for when no file declares it any more and its fences are to be removed. Null: an older
-- release has kept it. And when they were removed.
alter table shard_maps add column reach jsonb;
alter table shard_maps add column removed timestamptz;
