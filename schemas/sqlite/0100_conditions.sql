-- +goose Up
-- procaas: works with 86

-- With each execution of a statement that meets such a condition, SQLite makes a table of a list of more than two values. So each flow
-- made eight of them. The conditions say the same by "or".
drop index runs_active;
create unique index runs_active on runs (flow, key)
    where ordered and (place = 'ready' or place = 'running' or place = 'parked' or place = 'held' or place = 'blocked');

drop index runs_aside;
create index runs_aside on runs (pipeline, place, cause, awaits is not null, since)
    where place = 'parked' or place = 'held' or place = 'blocked' or place = 'deferred' or place = 'failed';

-- A constraint cannot be altered, but its text can be replaced, since it says nothing of how rows are stored. That is what the
-- documentation of SQLite suggests.
pragma writable_schema = on;
update sqlite_schema set sql = replace(sql, 'place in
        (''ready'', ''running'', ''parked'', ''held'', ''blocked'', ''queued'', ''scheduled'', ''deferred'', ''failed'')',
    'place = ''running'' or place = ''ready'' or place = ''queued'' or place = ''parked'' or place = ''held''
        or place = ''blocked'' or place = ''scheduled'' or place = ''deferred'' or place = ''failed''')
where type = 'table' and name = 'runs';
update sqlite_schema set sql = replace(sql, 'status in (''succeeded'', ''cancelled'', ''ignored'')',
    'status = ''succeeded'' or status = ''cancelled'' or status = ''ignored''')
where type = 'table' and name = 'history';
pragma writable_schema = reset;
