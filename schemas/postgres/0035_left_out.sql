-- +goose Up

-- What a run that has succeeded went on without: lines of a path and a reason, a line break before the first. The index
-- alone tells which runs have left a handler out.
alter table history add column left_out text collate "C";
create index history_left_out on history (seq) include (left_out) where left_out is not null;
