-- +goose Up

-- What a checkpoint changes comes last in the row. PostgreSQL logs of an updated row only what lies between the first byte that
-- is another and the last one, so the event and the names of a run are not logged anew with each checkpoint. Columns that are
-- added later come behind: a row keeps them in its log only if they take no room when they are not used.
alter table runs rename column version to old_version;
alter table runs rename column checkpoint to old_checkpoint;
alter table runs add column version bigint not null default 0, add column checkpoint bytea;
update runs set version = old_version, checkpoint = old_checkpoint where old_version <> 0 or old_checkpoint is not null;
alter table runs drop column old_version, drop column old_checkpoint;
