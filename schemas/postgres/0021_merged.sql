-- +goose Up

-- A stretch of keys that was merged into the one before it leaves a row behind, so that all who follow the map hear of it.
alter table shard_placements drop constraint shard_placements_state_check;
alter table shard_placements add constraint shard_placements_state_check check (state in ('creating', 'active', 'refused', 'merged'));

-- How busy a shard is, as last measured: its load is a share of the connections that it takes.
alter table shards add column connections int;
alter table shards add column max_connections int;
