-- +goose Up

-- Tasks of the queue. Times are microseconds of the Unix epoch. The comments are those of PostgreSQL's migration.

-- place: 'scheduled', 'ready', 'starting', 'running', 'waiting', 'dead'
create table tasks (
    id        integer primary key autoincrement,
    created   integer not null,
    due       integer not null,
    deadline  integer not null,
    begun     integer not null default 0,
    until     integer not null default 0,
    ended     integer not null default 0, -- of dead ones
    rank      integer not null default 0,
    epoch     integer not null default 0,
    failures  integer not null default 0,
    lost      integer not null default 0,
    timeout   integer not null default 0,
    slot      integer not null default 0,
    place     text not null,
    type      text not null,
    key       text not null default '',
    uid       text not null default '',
    worker    text not null default '',
    error     text not null default '',
    payload   blob not null default x''
);
create index tasks_ready on tasks (type, rank, deadline, id) where place = 'ready';
create index tasks_due on tasks (due, id) where place = 'scheduled';
create index tasks_taken on tasks (type, key, until) where place in ('starting', 'running');
create index tasks_waiting on tasks (type, key, rank, deadline, id) where place = 'waiting';
create index tasks_dead on tasks (type, ended) where place = 'dead';

create table task_keys (
    type           text    not null,
    uid            text    not null,
    id             integer not null,
    again          integer not null default 0,
    next_rank      integer not null default 0,
    next_due       integer not null default 0,
    next_tolerance integer not null default 0, -- microseconds
    next_timeout   integer not null default 0,
    next_slot      integer not null default 0,
    next_key       text    not null default '',
    next_payload   blob    not null default x'',
    primary key (type, uid)
) without rowid;
create index task_keys_id on task_keys (id);

create table task_history (
    id        integer primary key,
    due       integer not null,
    deadline  integer not null,
    begun     integer not null,
    ended     integer not null,
    epoch     integer not null,
    cancelled integer not null default 0,
    type      text not null,
    key       text not null,
    worker    text not null
);
create index task_history_ended on task_history (ended);

create table task_types (
    type    text primary key,
    mode    text not null default 'open' check (mode in ('open', 'paused', 'draining')),
    reason  text not null default '',
    changed integer not null
) without rowid;
