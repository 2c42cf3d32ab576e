-- +goose Up

-- The comments are those of PostgreSQL's migration.
create table task_facts (
    type      text primary key,
    asked     integer not null default 0, -- 0: nobody has
    worker    text    not null default '',
    raised    integer not null default 0,
    raised_at integer not null default 0
) without rowid;
