-- +goose Up

-- A transaction that is left open anywhere in the cluster keeps all versions of rows that were current since it
-- began. What is read often must not pass by them: reading begins behind what is known to be gone, in the order of
-- an index, and rows that each transaction reads are not those that change each second.
drop index runs_ready;
create index runs_ready on runs ((- priority), deadline, seq) where place = 'ready';

-- Only who looks for times says this about due: nobody else is to be planned by this index.
drop index runs_timer;
create index runs_timer on runs (due) where place in ('parked', 'scheduled') and due > '-infinity';

create index runs_cancel on runs (id) where cancel is not null;
create index runs_move on runs (id) where move is not null;

-- How long a node may go on: its beats change this, and each of its commits reads its row in nodes.
create table leases (
    node        bigint primary key references nodes on delete cascade,
    seen        timestamptz not null,
    lease_until timestamptz not null,
    bundle      text collate "C" not null default '' -- by which the node serves new events
) with (fillfactor = 20);
insert into leases select node, seen, lease_until, bundle from nodes;
alter table nodes drop column seen, drop column lease_until, drop column bundle;
