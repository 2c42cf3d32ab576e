-- +goose Up

-- By which versions new runs begin: the current definition, or a split of the keys between two. Claims read it themselves, so
-- that no run of a key begins by what a node has not heard of yet. Empty until it changes: then nodes say it. served is the
-- revision of the settings with which it changed; a cell takes it over from the home.
alter table settings add column serving text collate "C" not null default '', add column served bigint not null default 0;
