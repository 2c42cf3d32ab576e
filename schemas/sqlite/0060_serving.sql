-- +goose Up

-- By which versions new runs begin: the current definition, or a split of the keys between two. Claims read it themselves, so
-- that no run of a key begins by what a node has not heard of yet. Empty until it changes: then nodes say it.
alter table definition add column serving text not null default '';
