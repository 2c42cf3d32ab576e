-- +goose Up
-- procaas: works with 86

-- Where nodes last wrote, so that they notice when a backup was restored. There is one row.
create table incarnation (
    one      boolean primary key default true check (one),
    id       uuid   not null default gen_random_uuid(), -- another one when an operator adopts a restored store
    system   bigint not null default 0, -- the server, as pg_control_system() names it; 0 if no node has worked yet
    timeline bigint not null default 0  -- the branch of its log
);
insert into incarnation default values;
