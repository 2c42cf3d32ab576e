-- +goose Up

-- Which session of the server is open for as long as a node's process lives. When it is gone, and the node silent for two
-- beats, the node is dead: nobody need wait for the end of its lease. The table is not logged, so a server that has crashed,
-- or was promoted or restored, has forgotten all of it; one that was stopped well started at another time since. Then the
-- numbers of sessions mean nothing, and leases alone count.
create unlogged table presence (
    node    bigint primary key,
    session integer not null,                -- its process at the server
    server  timestamptz not null,            -- when that was started
    process text collate "C" not null        -- of the node, for those on its machine; empty when it cannot be told
);
