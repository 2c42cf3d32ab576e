-- +goose Up

-- As which one of several databases that share an inbox this one is enrolled: one row, or none.
create table inbox_cell (
    inbox  text    not null,
    name   text    not null,
    number integer not null
);
create unique index inbox_cell_one on inbox_cell ((true));

-- The slots that an enrolled database has, or that come or go. Whoever accepts events shares the lock of this table's number,
-- whoever changes it holds that alone.
create table inbox_slots (
    slot  integer primary key,
    state text collate "C" not null constraint inbox_slots_state check (state in ('open', 'frozen', 'arriving')),
    move  text collate "C" not null default ''
) with (fillfactor = 50);

-- Events that runs have emitted to slots that are elsewhere; intake is JSON. They move with the slot of the run.
create table inbox_outbox (
    number bigint generated always as identity primary key,
    slot   integer not null, -- to which
    origin integer not null, -- slot of the run
    intake bytea   not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index inbox_outbox_slot on inbox_outbox (slot);
create index inbox_outbox_origin on inbox_outbox (origin, number);

-- The slot of a key.
create function inbox_slot(key text) returns integer language sql immutable strict parallel safe as $$
    select (get_byte(h, 0) * 256 + get_byte(h, 1)) % 4096 from sha256(convert_to(key, 'UTF8')) h
$$;

-- The slot of the event's key, in a database that is enrolled: the run may be elsewhere, or forgotten.
alter table events add column slot integer;

-- away: the run's slot is on its way to another database, or has come from one and is not open yet; was is its place before.
alter table runs add column was text collate "C";
alter table runs drop constraint runs_place;
alter table runs add constraint runs_place check (place in
    ('ready', 'running', 'parked', 'held', 'blocked', 'queued', 'scheduled', 'deferred', 'failed', 'away'));
