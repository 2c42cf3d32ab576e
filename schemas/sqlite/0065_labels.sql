-- +goose Up

-- What the sender of an event wants its run to be found by: name=value pairs, with commas around each. Most runs have none.
alter table runs add column labels text;
alter table history add column labels text;
create index history_labels on history (seq, labels) where labels is not null;
