-- A freeze that was sealed does not thaw by itself, since the map may have switched. Where its coordinator dies then, any
-- other process finds it here when it has lasted longer than it may, asks the map, and ends it.
alter table procaas.fences add column hold bigint not null default 500; -- milliseconds that the latest freeze may last
create index fences_sealed on procaas.fences (map, key) where state = 'frozen' and until is null;

create or replace function procaas.freeze(p_map text, p_key text, p_epoch bigint, p_next bigint, p_owner text, p_attempt bigint, p_ms bigint)
    returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_advisory_xact_lock(procaas.fence_lock(p_map, p_key));
    update procaas.fences set state = 'frozen', until = clock_timestamp() + p_ms * interval '1 millisecond', hold = p_ms,
            next = p_next, owner = p_owner, attempt = p_attempt, changed = clock_timestamp()
        where map = p_map and key = p_key and epoch = p_epoch and next <= p_next and state in ('active', 'frozen');
    return found;
end
$$;

-- overdue lists the sealed freezes that have lasted longer than they may.
create function procaas.overdue() returns table (map text, key text, epoch bigint) language sql volatile
    set search_path = pg_catalog, pg_temp as $$
    select f.map, f.key, f.epoch from procaas.fences f
        where f.state = 'frozen' and f.until is null and f.changed + f.hold * interval '1 millisecond' < clock_timestamp()
$$;

revoke all on function procaas.overdue from public;
