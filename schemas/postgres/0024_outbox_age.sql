-- +goose Up

-- Since when an event is in the outbox: one that is there for long goes to a database that is away, or full. SQLite has
-- no such migration: it has no cells.
alter table inbox_outbox add column emitted timestamptz not null default clock_timestamp();
