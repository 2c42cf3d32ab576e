-- +goose Up

-- How often a node's lease was renewed. A node that was answered more often than its row shows knows that the server
-- was set back behind what it acknowledged, as by a failover to a replica that lags.
alter table leases add column beats bigint not null default 0;
