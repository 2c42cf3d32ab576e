-- +goose Up

-- A run of three calls grows to three times its size. With less room, a quarter of the checkpoints did not stay on
-- their page, and each of those touched four indexes.
alter table runs set (fillfactor = 25);
