-- +goose Up

-- Since when a run waits that is set aside: for its cause, however often it was parked for that.
alter table runs add column since timestamptz;
-- It is parked until an event comes: what awaits says, short enough for an index.
alter table runs add column listens boolean not null default false;
update runs set since = coalesce(ended, accepted), listens = awaits is not null where place in ('parked', 'held', 'blocked', 'deferred', 'failed');

-- All that is set aside is counted by this index alone. Only who counts says this about since: nobody else is to be
-- planned by it.
create index runs_aside on runs (pipeline, place, cause, listens, since)
    where place in ('parked', 'held', 'blocked', 'deferred', 'failed') and since > '-infinity';

-- The counts that one node has made for all, as JSON.
alter table depth add column aside bytea;
