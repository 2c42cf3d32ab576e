-- +goose Up

-- What calls of handlers came to, a row for each report of a node, about one a second; counts is JSON. Rows are kept
-- as long as decisions look back.
create table tallies (
    seq    bigint generated always as identity primary key,
    node   bigint      not null,
    number bigint      not null,
    at     timestamptz not null,
    counts bytea       not null,
    constraint tallies_report unique (node, number)
) with (autovacuum_vacuum_scale_factor = 0.2, autovacuum_vacuum_threshold = 500);
create index tallies_at on tallies (at);

-- Which handlers are out of the flow; one row. Reports share its lock while they are written, decisions hold it alone, so that
-- up to taken there is no report that a decision has not seen.
create table fallback (
    revision bigint not null, -- of the state
    turn     bigint not null, -- grows with each decision
    decider  bigint not null, -- the node that decided last
    decided  timestamptz,
    taken    bigint not null, -- tallies.seq up to which decisions have taken reports in
    state    bytea  not null  -- JSON; empty before there is one
);
insert into fallback values (0, 0, 0, null, 0, '');

-- When it was tried last whether an outage is over.
create table probes (
    outage text collate "C" primary key,
    at     timestamptz not null
);
