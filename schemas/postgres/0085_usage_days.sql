-- +goose Up

-- What paths have used on a day, and how often they kept their target. Nodes add to it about once a minute.
create table usage_days (
    day          text collate "C" not null, -- 2006-01-02, in UTC
    path         text collate "C" not null, -- a pipeline, a stage or a handler; empty for the nodes themselves
    calls        bigint           not null,
    bytes        bigint           not null,
    call_micros  bigint           not null,
    cpu_micros   bigint           not null,
    runs         bigint           not null,
    stored_bytes bigint           not null,
    timed        bigint           not null, -- runs, or passes of a stage, that had a target
    late         bigint           not null, -- those of them that took longer
    primary key (day, path)
) with (fillfactor = 50);
