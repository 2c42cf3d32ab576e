-- +goose Up
-- procaas: works with 86

-- See 0096. Each file holds the lock of one table.
alter table history drop constraint if exists history_status;
