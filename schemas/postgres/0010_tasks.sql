-- +goose Up

-- Tasks of the queue. They live apart from runs: they are many, narrow and short-lived. Payloads are JSON, kept byte
-- for byte. Names and keys compare by bytes.

-- Sessions take ids by the thousand: a task's id is one of the 1000 that begin with the number drawn.
create sequence task_ids increment by 1000;

-- Tasks that may be taken, and those that are.
--
-- state:  0 ready     nobody has taken it
--         1 starting  a worker holds it in its own queue
--         2 running   a worker has said that it runs it
--         3 waiting   as many tasks of its key are taken as may be
--
-- A payload over a kilobyte lies apart (TOAST), so that a claim, which writes the row anew, does not copy it.
create table tasks (
    id        bigint      not null,
    created   timestamptz not null default now(),
    due       timestamptz not null default now(), -- from when on it might be taken
    deadline  timestamptz not null default now(), -- due, plus what it may wait without harm
    begun     timestamptz,                        -- when it was taken
    until     timestamptz,                        -- by then its worker must have said something
    rank      integer     not null default 0,     -- the negative of the priority
    epoch     integer     not null default 0,     -- how often it was taken; fences those who held it before
    failures  integer     not null default 0,
    lost      integer     not null default 0,     -- how often its worker was not heard of any more
    timeout   integer     not null default 0,     -- milliseconds for one attempt; 0 for no bound
    slot      smallint    not null default 0,
    state     smallint    not null default 0,
    type      text collate "C" not null,
    key       text collate "C" not null default '',
    uid       text collate "C" not null default '', -- among the tasks of its type; empty for none
    worker    text collate "C" not null default '',
    error     text        not null default '',     -- of the last attempt
    payload   bytea       not null default '',
    constraint tasks_id primary key (id),
    constraint tasks_taken check ((state in (1, 2)) = (until is not null))
) with (fillfactor = 70, toast_tuple_target = 1024, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 5000, toast.autovacuum_vacuum_cost_delay = 0);
alter table tasks alter column payload set storage external;
create index tasks_ready on tasks (type, rank, deadline, id) where state = 0;
create index tasks_taken on tasks (type, key) where state in (1, 2);
create index tasks_waiting on tasks (type, key, rank, deadline, id) where state = 3;

-- Tasks whose time has not come. They lie in nobody's way here.
create table task_schedule (
    id        bigint      not null,
    created   timestamptz not null,
    due       timestamptz not null,
    deadline  timestamptz not null,
    rank      integer     not null,
    epoch     integer     not null,
    failures  integer     not null,
    lost      integer     not null,
    timeout   integer     not null,
    slot      smallint    not null,
    type      text collate "C" not null,
    key       text collate "C" not null,
    uid       text collate "C" not null,
    error     text        not null,
    payload   bytea       not null,
    constraint task_schedule_id primary key (id)
) with (toast_tuple_target = 1024, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0);
alter table task_schedule alter column payload set storage external;
create index task_schedule_due on task_schedule (due, id);

-- One row for each unique key that a task has, wherever that task is. Who changes a task that has one locks this row
-- first. What is in next_… makes the task that follows when this one has ended.
create table task_keys (
    type           text collate "C" not null,
    uid            text collate "C" not null,
    id             bigint   not null,
    again          boolean  not null default false,
    next_rank      integer  not null default 0,
    next_due       timestamptz not null default '-infinity',
    next_tolerance interval not null default '0',
    next_timeout   integer  not null default 0,
    next_slot      smallint not null default 0,
    next_key       text collate "C" not null default '',
    next_payload   bytea    not null default '',
    constraint task_keys_uid primary key (type, uid)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index task_keys_id on task_keys (id);

-- Tasks that have failed for good: the dead letters. They stay until somebody decides.
create table task_dead (
    id        bigint      not null,
    created   timestamptz not null,
    due       timestamptz not null,
    ended     timestamptz not null default now(),
    tolerance interval    not null,
    rank      integer     not null,
    epoch     integer     not null,
    failures  integer     not null,
    lost      integer     not null,
    timeout   integer     not null,
    slot      smallint    not null,
    type      text collate "C" not null,
    key       text collate "C" not null,
    uid       text collate "C" not null,
    worker    text collate "C" not null,
    error     text        not null,
    payload   bytea       not null,
    constraint task_dead_id primary key (id)
);
create index task_dead_type on task_dead (type, ended);

-- Tasks that have ended well or were cancelled, a partition for each day, made ahead. Old ones leave by dropping
-- partitions.
create table task_history (
    id        bigint      not null,
    due       timestamptz not null,
    deadline  timestamptz not null,
    begun     timestamptz,
    ended     timestamptz not null default now(),
    epoch     integer     not null,
    cancelled boolean     not null default false,
    type      text collate "C" not null,
    key       text collate "C" not null,
    worker    text collate "C" not null
) partition by range (ended);
create table task_history_rest partition of task_history default;
create index task_history_id on task_history using brin (id) with (pages_per_range = 16);

-- What operators have said of a type.
create table task_types (
    type    text collate "C" not null primary key,
    mode    text collate "C" not null default 'open' constraint task_types_mode check (mode in ('open', 'paused', 'draining')),
    reason  text not null default '',
    changed timestamptz not null default now()
);
