-- +goose Up

-- The slots of tasks are those of inbox_slots from 4096 on. A database that was the home of an inbox before has all of them.
insert into inbox_slots (slot, state) select n, 'open' from generate_series(4096, 5119) n, inbox_cell where number = 0
    on conflict do nothing;

-- Tasks of all databases of an inbox have ids of their own: each database takes every 64th thousand. Those that are not the
-- home begin behind all that a home may have given before.
-- +goose StatementBegin
create or replace function inbox_spread_tasks() returns void language plpgsql as $$
declare
    cell integer := (select number from inbox_cell);
    base bigint := coalesce(pg_sequence_last_value('task_ids'), 0);
begin
    if cell is null then
        return;
    end if;
    if cell > 0 then
        base := greatest(base, 1099511616000);
    end if;
    alter sequence task_ids increment by 64000;
    perform setval('task_ids', (base / 64000 + 1) * 64000 + cell * 1000 + 1, false);
end
$$;
-- +goose StatementEnd
select inbox_spread_tasks();

-- Tasks on their way to another database; rows is JSON.
create table if not exists task_parcels (
    number bigint generated always as identity primary key,
    id     text collate "C" not null default gen_random_uuid()::text,
    target text not null,
    rows   text not null
);

-- The parcels that have come here. They stay: one may come again, however late.
create table if not exists task_received (
    id text collate "C" primary key
);
