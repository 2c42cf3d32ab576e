-- +goose Up

-- Since when a run waits that is set aside: for its cause, however often it was parked for that.
alter table runs add column since integer;
update runs set since = coalesce(ended, accepted) where place in ('parked', 'held', 'blocked', 'deferred', 'failed');

-- All that is set aside is counted by this index alone.
create index runs_aside on runs (pipeline, place, cause, awaits is not null, since)
    where place in ('parked', 'held', 'blocked', 'deferred', 'failed');
