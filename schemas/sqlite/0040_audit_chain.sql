-- +goose Up

-- The hash of a record and of the chain before it. Records from before this migration have none: the chain begins behind
-- them. audit_horizon says with which record it begins: the last of those, or the last that was removed for its age.
alter table audit add column hash blob not null default x'';
alter table audit_horizon add column base integer not null default 0;
alter table audit_horizon add column base_hash blob not null default x'';
update audit_horizon set base = coalesce((select seq from sqlite_sequence where name = 'audit'), 0);
