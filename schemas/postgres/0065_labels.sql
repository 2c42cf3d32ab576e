-- +goose Up

-- What the sender of an event wants its run to be found by: name=value pairs, with commas around each. Most runs have none.
-- The index alone tells which runs have a label.
alter table runs add column labels text collate "C";
alter table history add column labels text collate "C";
create index history_labels on history (seq) include (labels) where labels is not null;
