-- +goose Up

-- Switches and limits that operators set, by path: pipeline, pipeline/stage or pipeline/stage/handler.
create table controls (
    path     text collate "C" primary key,
    value    bytea       not null,
    revision bigint      not null,
    changed  timestamptz not null,
    actor    text        not null,
    reason   text        not null
);

-- What a parked run waits for besides its time; empty for nothing.
alter table runs add column cause text collate "C" not null default '';
create index runs_cause on runs (cause, seq) where place = 'parked' and cause <> '';
