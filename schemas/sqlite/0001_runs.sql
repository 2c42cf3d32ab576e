-- +goose Up

-- Times are microseconds since 1970, in UTC. Events, checkpoints and shared state are JSON.

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
create table runs (
    seq         integer primary key autoincrement, -- the order of acceptance; a number never comes again
    id          text    not null unique,
    flow        text    not null,
    key         text    not null,
    ordered     integer not null,
    block       integer not null,
    place       text    not null check (place in
        ('ready', 'running', 'parked', 'held', 'blocked', 'queued', 'scheduled', 'deferred', 'failed')),
    node        integer not null default 0 check ((place = 'running') = (node <> 0)),
    version     integer not null default 0,
    generation  integer not null default 0,
    pipeline    text    not null,
    bundle      text    not null default '',
    priority    integer not null,
    accepted    integer not null,
    started     integer,
    ended       integer,
    due         integer not null,
    deadline    integer not null, -- the first due time, plus the event's delay tolerance
    cancel      text,             -- why an operator wants the run ended; only of a running one
    failed_path text    not null default '',
    error       text    not null default '',
    error_class text    not null default '',
    event       blob    not null,
    checkpoint  blob
) strict;

-- At most one run of a key is under way. The engine sees to it; this makes a mistake an error.
create unique index runs_active on runs (flow, key)
    where ordered and place in ('ready', 'running', 'parked', 'held', 'blocked');
create index runs_key on runs (flow, key, seq);
create index runs_ready on runs (priority desc, deadline, seq, due) where place = 'ready';
create index runs_timer on runs (due) where place in ('parked', 'scheduled');
create index runs_node on runs (node) where place = 'running';
create index runs_waiting on runs (due) where place in ('queued', 'deferred');
create index runs_failed on runs (seq) where place in ('blocked', 'failed');

-- Runs that have ended for good.
create table history (
    seq         integer primary key,
    id          text    not null unique,
    flow        text    not null,
    key         text    not null,
    ordered     integer not null,
    status      text    not null check (status in ('succeeded', 'cancelled', 'ignored')),
    version     integer not null,
    generation  integer not null,
    pipeline    text    not null,
    bundle      text    not null,
    accepted    integer not null,
    started     integer,
    ended       integer not null,
    failed_path text    not null,
    error       text    not null,
    error_class text    not null,
    reason      text    not null,
    event       blob    not null,
    checkpoint  blob
) strict;

create index history_key on history (flow, key, seq);
create index history_pipeline on history (pipeline, seq);
create index history_status on history (status, seq) where status <> 'succeeded';

-- The entities: what is kept between the events of one key.
create table keys (
    flow   text not null,
    key    text not null,
    state  text not null default '',
    shared blob,
    primary key (flow, key)
) strict, without rowid;

-- Events whose sender chose the id: a repetition finds its run here.
create table events (
    source   text    not null,
    id       text    not null,
    run      text    not null,
    hash     text    not null,
    accepted integer not null,
    primary key (source, id)
) strict, without rowid;

-- Processes that own runs. The number is the fencing token: it never comes again.
create table nodes (
    node        integer primary key autoincrement,
    name        text    not null,
    started     integer not null,
    seen        integer not null,
    lease_until integer not null,
    gone        integer, -- when it left or was found dead; from then on it may not write
    died        integer not null default 0
) strict;

create table bundles (
    hash     text    primary key,
    files    blob    not null,
    accepted integer not null
) strict;

-- The definition for new events on all nodes; at most one row.
create table definition (
    one  integer primary key check (one = 1),
    hash text    not null references bundles
) strict;

create table configs (
    name     text    primary key,
    value    blob    not null,
    revision integer not null,
    changed  integer not null,
    actor    text    not null,
    reason   text    not null
) strict;

-- Every change of a setting, kind config, and of the definition, kind definition; the greatest revision is the one of the settings.
create table audit (
    revision integer primary key autoincrement,
    changed  integer not null,
    actor    text    not null,
    reason   text    not null,
    kind     text    not null,
    name     text    not null,
    before   blob,
    after    blob    not null
) strict;
