-- +goose Up

-- The definition by which an operator wants a run to go on; only of runs that a node owned when that was asked.
alter table runs add column move text;

-- The definition by which a node serves new events.
alter table nodes add column bundle text not null default '';
