-- +goose Up

-- How often a node's lease was renewed. A node that was answered more often than its row shows knows that the file
-- was set back behind what it acknowledged.
alter table nodes add column beats integer not null default 0;
