-- Installed on the master of each shard, in the schema procaas of the database that holds the keys' tables.

-- What the shard knows of each placement that it has, or had.
create table procaas.fences (
    map     text collate "C" not null,
    key     text collate "C" not null, -- of the placement
    epoch   bigint not null,
    state   text not null check (state in ('active', 'frozen', 'moved', 'closed')),
    target  text,                      -- the shard that has it now; only when moved
    owner   text,                      -- token of the transfer that wrote the row last
    attempt bigint not null default 0, -- of the transfer at freezing, so that a stream tells the barrier of this attempt from older ones
    until   timestamptz,               -- when a frozen placement thaws by itself; null: it does not, the switch has begun
    next    bigint not null default 0, -- the epoch of the latest transfer that has claimed the placement: older ones change nothing
    changed timestamptz not null default clock_timestamp(),
    primary key (map, key)
);

-- The timeline on which the fences were last compared with the map: a promoted server has another one and takes no
-- writes until they have been compared again, since it may have lost the latest of them.
create table procaas.compared (
    one      boolean primary key default true check (one),
    timeline text not null,
    at       timestamptz not null default clock_timestamp()
);

create function procaas.fence_lock(p_map text, p_key text) returns bigint
    language sql immutable strict parallel safe
    return hashtextextended(p_map || chr(10) || p_key, 8104927);

create function procaas.timeline() returns text language sql stable
    return substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8);

-- guard lets a transaction go on that may write the rows of a placement: whoever writes calls it first, with the
-- placement and the epoch that the map has given, and asks the map again when it fails with PC001.
--
-- The shared lock makes a freeze wait for the writers that are under way, and them queue behind it. Under READ COMMITTED
-- the row is read after the lock was granted, so it is as the freeze has left it. Other isolation levels read as of the
-- start of the transaction; there the row is locked, which fails with 40001 when it has changed since.
--
-- A freeze that has run out holds nobody back: a coordinator that dies leaves the key writable again. Writers look at the
-- clock while they hold the shared lock, and seal looks while it holds the exclusive one, on the same server: either the
-- writer is before the seal and it fails, or it waits for the seal and is refused.
create function procaas.guard(p_map text, p_key text, p_epoch bigint) returns void
    language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    f procaas.fences;
begin
    perform pg_advisory_xact_lock_shared(procaas.fence_lock(p_map, p_key));
    if pg_is_in_recovery() then
        select * into f from procaas.fences where map = p_map and key = p_key;
    else
        if not exists (select from procaas.compared where timeline = procaas.timeline()) then
            raise exception 'this server was promoted, and its fences have not been compared with the map yet'
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

-- fence changes what the shard knows of a placement, as its only writer, and tells whether it did: an older epoch never
-- replaces a newer one. It waits for the writers under way; set lock_timeout before.
create function procaas.fence(p_map text, p_key text, p_epoch bigint, p_state text, p_target text, p_owner text, p_attempt bigint)
    returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_advisory_xact_lock(procaas.fence_lock(p_map, p_key));
    insert into procaas.fences as f (map, key, epoch, state, target, owner, attempt)
        values (p_map, p_key, p_epoch, p_state, p_target, p_owner, p_attempt)
        on conflict (map, key) do update set epoch = excluded.epoch, state = excluded.state, target = excluded.target,
            owner = excluded.owner, attempt = excluded.attempt, until = null, changed = clock_timestamp()
        where f.epoch <= excluded.epoch;
    return found;
end
$$;

-- claim makes the freezes of older transfers void, and thaws what they have left: for a transfer whose token the map
-- has just given, so that theirs cannot switch any more.
create function procaas.claim(p_map text, p_key text, p_epoch bigint, p_next bigint) returns boolean
    language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_advisory_xact_lock(procaas.fence_lock(p_map, p_key));
    update procaas.fences set state = 'active', until = null, next = p_next, changed = clock_timestamp()
        where map = p_map and key = p_key and epoch = p_epoch and next <= p_next and state in ('active', 'frozen');
    return found;
end
$$;

-- freeze holds writers back for some milliseconds at most, of a transfer that no later one has replaced.
create function procaas.freeze(p_map text, p_key text, p_epoch bigint, p_next bigint, p_owner text, p_attempt bigint, p_ms bigint)
    returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_advisory_xact_lock(procaas.fence_lock(p_map, p_key));
    update procaas.fences set state = 'frozen', until = clock_timestamp() + p_ms * interval '1 millisecond',
            next = p_next, owner = p_owner, attempt = p_attempt, changed = clock_timestamp()
        where map = p_map and key = p_key and epoch = p_epoch and next <= p_next and state in ('active', 'frozen');
    return found;
end
$$;

-- seal makes a freeze last for some milliseconds more, or until the transfer ends it when p_ms is null, unless it has run
-- out. The map may switch only behind the latter.
create function procaas.seal(p_map text, p_key text, p_epoch bigint, p_next bigint, p_attempt bigint, p_ms bigint) returns boolean
    language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_advisory_xact_lock(procaas.fence_lock(p_map, p_key));
    update procaas.fences set until = clock_timestamp() + p_ms * interval '1 millisecond', changed = clock_timestamp()
        where map = p_map and key = p_key and epoch = p_epoch and next = p_next and attempt = p_attempt
            and state = 'frozen' and until > clock_timestamp();
    return found;
end
$$;

revoke all on function procaas.fence, procaas.claim, procaas.freeze, procaas.seal from public;
grant usage on schema procaas to public;
grant execute on function procaas.guard, procaas.timeline, procaas.fence_lock to public;
