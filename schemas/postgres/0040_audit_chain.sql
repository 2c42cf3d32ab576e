-- +goose Up

-- The hash of a record and of the chain before it. Records from before this migration have none: the chain begins behind
-- them. settings says with which record it begins: the last of those, or the last that was removed for its age.
alter table audit add column hash bytea not null default '';
alter table settings add column audit_base bigint not null default 0, add column audit_base_hash bytea not null default '';
update settings set audit_base = revision;
