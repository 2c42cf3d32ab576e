-- The timeline on which the fences of a map were last compared with it. It is of each map, since maps share databases, and
-- one that nobody compares any more must hold back its own writers only. A map without a row was enrolled by an older
-- release, so that procaas.compared counts for it.
create table procaas.compared_maps (
    map      text collate "C" primary key,
    timeline text not null,
    at       timestamptz not null default clock_timestamp()
);

-- An older release compares all maps of the database, or none.
create function procaas.compared_all() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update procaas.compared_maps set timeline = new.timeline, at = new.at;
    return null;
end
$$;
create trigger compared_all after update on procaas.compared for each row execute function procaas.compared_all();

-- As before, but only the fences of this map must have been compared.
create or replace function procaas.guard(p_map text, p_key text, p_epoch bigint) returns void
    language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    f procaas.fences;
begin
    perform pg_advisory_xact_lock_shared(procaas.fence_lock(p_map, p_key));
    if pg_is_in_recovery() then
        select * into f from procaas.fences where map = p_map and key = p_key;
    else
        if procaas.timeline() is distinct from coalesce((select timeline from procaas.compared_maps where map = p_map),
                (select timeline from procaas.compared)) then
            raise exception 'this server was promoted, and its fences of map % have not been compared with the map yet', p_map
                using errcode = 'PC002', hint = 'ask the map again';
        end if;
        if current_setting('transaction_isolation') = 'read committed' then
            select * into f from procaas.fences where map = p_map and key = p_key;
        else
            select * into f from procaas.fences where map = p_map and key = p_key for share;
        end if;
    end if;
    if f.map is null then
        raise exception 'key % of map % does not live here', p_key, p_map
            using errcode = 'PC001', hint = 'ask the map again', detail = 'state=absent epoch=0';
    elsif f.epoch = p_epoch and (f.state = 'active' or f.state = 'frozen' and f.until < clock_timestamp()) then
        return;
    end if;
    raise exception 'key % of map % is % at epoch %, asked with %', p_key, p_map, f.state, f.epoch, p_epoch
        using errcode = 'PC001', hint = 'ask the map again',
            detail = format('state=%s epoch=%s target=%s', f.state, f.epoch, f.target);
end
$$;
