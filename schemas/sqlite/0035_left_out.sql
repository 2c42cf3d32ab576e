-- +goose Up

-- What a run that has succeeded went on without: lines of a path and a reason, a line break before the first.
alter table history add column left_out text;
create index history_left_out on history (seq, left_out) where left_out is not null;
