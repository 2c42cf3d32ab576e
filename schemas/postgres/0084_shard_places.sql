-- +goose Up

-- The place of a shard among those of its map, by which its sequences have a range of their own. A shard keeps its place,
-- wherever the map declares it, and no other one gets it.
alter table shards add column place int;
create unique index shards_place on shards (map, place);
