-- +goose Up

-- An index that holds just what a lookup wants besides is taken for the lookup when statistics are those of an empty
-- table, and read from end to end. So, as with the timers, it has a condition that only those have who want all of it.
drop index runs_waiting;
create index runs_waiting on runs (due) where place in ('queued', 'deferred') and due > '-infinity';
