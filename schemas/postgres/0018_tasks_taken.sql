-- +goose Up

-- Each claim writes an entry into each index of what it takes. One whose entries all say the same, as type and key
-- do, costs as much as all else that a claim does; times only rise, and whoever looks for lost workers wants just
-- these. Only types that bound how many of them are taken have theirs counted.
alter table tasks add column counted boolean not null default false; -- among those that are taken
update tasks set counted = true where state in (1, 2);
drop index tasks_taken;
create index tasks_until on tasks (until) where until is not null;
create index tasks_counted on tasks (type, key) where counted and until is not null;
