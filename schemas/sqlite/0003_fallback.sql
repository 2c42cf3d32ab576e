-- +goose Up

-- What calls of handlers came to, a row for each report of a node, about one a second; counts is JSON. Rows are kept
-- as long as decisions look back.
create table tallies (
    seq    integer primary key autoincrement,
    node   integer not null,
    number integer not null,
    at     integer not null,
    counts blob    not null,
    unique (node, number)
) strict;
create index tallies_at on tallies (at);

-- Which handlers are out of the flow; one row.
create table fallback (
    revision integer not null, -- of the state
    turn     integer not null, -- grows with each decision
    decider  integer not null, -- the node that decided last
    decided  integer,
    taken    integer not null, -- tallies.seq up to which decisions have taken reports in
    state    blob    not null  -- JSON; empty before there is one
) strict;
insert into fallback values (0, 0, 0, null, 0, x'');

-- When it was tried last whether an outage is over.
create table probes (
    outage text    primary key,
    at     integer not null
) strict, without rowid;
