-- +goose Up

-- What is known of a type of tasks besides its tasks. A row is forgotten when nothing has happened to it for a month.
create table task_facts (
    type       text collate "C" not null primary key,
    asked      timestamptz,                 -- when somebody asked for such tasks last, to the minute; null: nobody has
    worker     text collate "C" not null default '', -- who that was
    raised     bigint      not null default 0, -- how many tasks the starvation guard has let go before others
    raised_at  timestamptz                  -- the last of them
);

-- The starvation guard looks for the latest of each priority among those that wait for others of their key, too.
create index tasks_aside on tasks (type, rank, deadline, id) where state = 3;
