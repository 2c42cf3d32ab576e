-- +goose Up

-- Events, checkpoints and shared state are JSON, kept byte for byte. Names and keys compare by bytes.

-- Runs that have not ended, and failed ones, which an operator may retry.
--
-- place says where a run is, finer than its status:
--   ready      waits for a node
--   running    node owns it
--   parked     waits in a handler, until due
--   held       waits in a handler, until an operator decides
--   blocked    has failed, and the later runs of its key wait for an operator
--   queued     waits for its turn in its key
--   scheduled  waits for its time, due; it has no place in the order of its key yet
--   deferred   waits for another state of its entity
--   failed     has failed, and the later runs of its key go on
--
-- No index has a column that a checkpoint changes, and pages keep room, for a row grows with its checkpoints: a
-- checkpoint then stays on its page and touches no index.
create table runs (
    seq         bigint generated always as identity primary key, -- the order of acceptance
    accepted    timestamptz not null,
    due         timestamptz not null,
    deadline    timestamptz not null, -- the first due time, plus the event's delay tolerance
    started     timestamptz,
    ended       timestamptz,
    version     bigint  not null default 0,
    node        bigint  not null default 0,
    priority    bigint  not null,
    generation  integer not null default 0,
    ordered     boolean not null,
    block       boolean not null,
    place       text collate "C" not null constraint runs_place check (place in
        ('ready', 'running', 'parked', 'held', 'blocked', 'queued', 'scheduled', 'deferred', 'failed')),
    id          text collate "C" not null constraint runs_id unique,
    flow        text collate "C" not null,
    key         text collate "C" not null,
    pipeline    text collate "C" not null,
    bundle      text collate "C" not null default '',
    cancel      text, -- why an operator wants the run ended; only of a running one
    failed_path text    not null default '',
    error       text    not null default '',
    error_class text collate "C" not null default '',
    event       bytea   not null,
    checkpoint  bytea,
    constraint runs_owner check ((place = 'running') = (node <> 0))
) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2);

-- At most one run of a key is under way. The engine sees to it; this makes a mistake an error.
create unique index runs_active on runs (flow, key)
    where ordered and place in ('ready', 'running', 'parked', 'held', 'blocked');
create index runs_key on runs (flow, key, seq);
create index runs_ready on runs (priority desc, deadline, seq) include (due) where place = 'ready';
create index runs_timer on runs (due) where place in ('parked', 'scheduled');
create index runs_node on runs (node) where place = 'running';
create index runs_waiting on runs (due) where place in ('queued', 'deferred');
create index runs_failed on runs (seq) where place in ('blocked', 'failed');

-- Runs that have ended for good, a partition for each day, made ahead. Old ones leave by dropping partitions.
create table history (
    seq         bigint      not null,
    accepted    timestamptz not null,
    started     timestamptz,
    ended       timestamptz not null,
    version     bigint      not null,
    generation  integer     not null,
    ordered     boolean     not null,
    status      text collate "C" not null
        constraint history_status check (status in ('succeeded', 'cancelled', 'ignored')),
    id          text collate "C" not null,
    flow        text collate "C" not null,
    key         text collate "C" not null,
    pipeline    text collate "C" not null,
    bundle      text collate "C" not null,
    failed_path text        not null,
    error       text        not null,
    error_class text collate "C" not null,
    reason      text        not null,
    event       bytea       not null,
    checkpoint  bytea
) partition by range (ended);

create index history_id on history (id);
create index history_seq on history (seq);
create index history_key on history (flow, key, seq);
create index history_pipeline on history (pipeline, seq);
create index history_rare on history (status, seq) where status <> 'succeeded';

-- Takes what no other partition does, so that the end of a run never fails.
create table history_rest partition of history default;

-- The entities: what is kept between the events of one key. Whoever changes which run of a key is under way
-- holds the lock of its row.
create table keys (
    flow   text collate "C" not null,
    key    text collate "C" not null,
    state  text not null default '',
    shared bytea,
    primary key (flow, key)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Events whose sender chose the id: a repetition finds its run here.
create table events (
    source   text collate "C" not null,
    id       text collate "C" not null,
    run      text collate "C" not null,
    hash     text collate "C" not null,
    accepted timestamptz not null,
    primary key (source, id)
);

create index events_accepted on events using brin (accepted);

-- Processes that own runs. The number is the fencing token: it never comes again.
create table nodes (
    node        bigint generated always as identity primary key,
    name        text        not null,
    started     timestamptz not null,
    seen        timestamptz not null,
    lease_until timestamptz not null,
    gone        timestamptz, -- when it left or was found dead; from then on it may not write
    died        boolean     not null default false
) with (fillfactor = 50);

create table bundles (
    hash     text collate "C" primary key,
    files    bytea       not null,
    accepted timestamptz not null
);

create table configs (
    name     text collate "C" primary key,
    value    bytea       not null,
    revision bigint      not null,
    changed  timestamptz not null,
    actor    text        not null,
    reason   text        not null
);

-- The revision of the settings, and the definition for new events on all nodes, empty before the first; the row
-- is the lock of those who change them.
create table settings (
    revision bigint not null,
    bundle   text collate "C" not null
);
insert into settings values (0, '');

-- Every change of a setting, kind config, and of the definition, kind definition.
create table audit (
    revision bigint primary key,
    changed  timestamptz not null,
    actor    text        not null,
    reason   text        not null,
    kind     text        not null,
    name     text        not null,
    before   bytea,
    after    bytea       not null
);
