-- +goose Up
-- procaas: works with 86

-- What the worker of a completed task has returned, for the run that waits for it.
alter table task_history add column result bytea;
