-- +goose Up

-- The shard maps. What shards and hosts there are is declared in files and copied here by each node that starts with
-- new ones; what was decided at run time is kept apart from it.
create table shard_maps (
    id       text collate "C" primary key,
    strategy text not null,
    slots    int  not null,
    version  bigint not null default 1 -- grows when shards, hosts or flags change
);

create table shards (
    map          text collate "C" not null references shard_maps on delete cascade,
    id           text collate "C" not null,
    class        text not null,
    registration boolean not null,     -- as declared
    transfer     boolean not null,
    capacity     bigint not null,      -- bytes
    closed       text,                 -- why registration was closed at run time; null: it was not
    draining     text,                 -- why all keys are to leave; null: they are not
    declared     boolean not null,     -- false: no file names it any more, but keys may live there
    used         bigint,               -- bytes, as last measured
    load         real,                 -- busy connections, as last measured
    measured     timestamptz,
    primary key (map, id)
);

create table shard_hosts (
    map      text collate "C" not null,
    shard    text collate "C" not null,
    address  text collate "C" not null,
    dc       text not null,
    position int not null,
    primary key (map, shard, address),
    foreign key (map, shard) references shards on delete cascade
);

-- Where keys live: a row for each key of a directory, for each slot ('#7'), for each stretch of keys ('[' and its lower
-- bound), and for each key that has a placement of its own besides.
create table shard_placements (
    map      text collate "C" not null references shard_maps on delete cascade,
    key      text collate "C" not null,
    shard    text collate "C" not null,
    epoch    bigint not null default 1,
    tried    bigint not null default 1,   -- the highest epoch that was ever handed to a transfer
    state    text not null default 'active' check (state in ('creating', 'active', 'refused')),
    owner    text,                        -- token of the transfer that may change the row; null: none
    transfer text,                        -- its id
    target   text,                        -- where it goes
    attrs    jsonb,                       -- by which it was placed
    changed  xid8 not null default pg_current_xact_id(),
    created  timestamptz not null default now(),
    active   timestamptz not null default now(), -- when it was last seen in use
    primary key (map, key)
);
create index shard_placements_changed on shard_placements (map, changed);
create index shard_placements_shard on shard_placements (map, shard, key);
create index shard_placements_owned on shard_placements (map, transfer) where owner is not null;
create index shard_placements_creating on shard_placements (map, created) where state = 'creating';

-- The feed of changes goes by the transaction: one that commits late is not passed over.
-- +goose StatementBegin
create function shard_placement_changed() returns trigger language plpgsql as $$
begin
    new.changed = pg_current_xact_id();
    return new;
end
$$;
-- +goose StatementEnd
create trigger shard_placement_changed before update on shard_placements
    for each row when (old.active = new.active) execute function shard_placement_changed();
