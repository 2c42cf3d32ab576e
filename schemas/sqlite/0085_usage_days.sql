-- +goose Up

-- What paths have used on a day, and how often they kept their target. Nodes add to it about once a minute.
create table usage_days (
    day          text    not null, -- 2006-01-02, in UTC
    path         text    not null, -- a pipeline, a stage or a handler; empty for the nodes themselves
    calls        integer not null,
    bytes        integer not null,
    call_micros  integer not null,
    cpu_micros   integer not null,
    runs         integer not null,
    stored_bytes integer not null,
    timed        integer not null, -- runs, or passes of a stage, that had a target
    late         integer not null, -- those of them that took longer
    primary key (day, path)
) strict, without rowid;
