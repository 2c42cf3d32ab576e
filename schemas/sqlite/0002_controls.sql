-- +goose Up

-- Switches and limits that operators set, by path: pipeline, pipeline/stage or pipeline/stage/handler.
create table controls (
    path     text    primary key,
    value    blob    not null,
    revision integer not null,
    changed  integer not null,
    actor    text    not null,
    reason   text    not null
) strict, without rowid;

-- What a parked run waits for besides its time; empty for nothing.
alter table runs add column cause text not null default '';
create index runs_cause on runs (cause, seq) where place = 'parked' and cause <> '';
