-- +goose Up
-- procaas: works with 86

-- Events that programs submit in their own transactions, until the subscription with broker: store has taken them.
create table submitted (
    id         bigint generated always as identity primary key,
    type       text        not null,
    key        text        not null, -- empty for none
    payload    jsonb       not null,
    event      text        not null, -- the id of the event
    created_at timestamptz not null default now()
);

-- Submits an event when the transaction of the caller commits, and returns its id. It is refused while no node takes events from here,
-- because nobody would see them.
-- +goose StatementBegin
do $do$ begin execute format($format$
create function procaas_submit(type text, key text default null, payload jsonb default '{}', id text default null) returns text
language plpgsql security definer set search_path = %I, pg_temp as $$
declare
    event text := coalesce(procaas_submit.id, gen_random_uuid()::text);
    wrong text := case
        when coalesce(procaas_submit.type, '') = '' then 'want a type, have none'
        when octet_length(procaas_submit.type) > 200 then 'want a type of at most 200 bytes, have ' || octet_length(procaas_submit.type)
        when octet_length(procaas_submit.key) > 1024 then 'want a key of at most 1024 bytes, have ' || octet_length(procaas_submit.key)
        when event = '' or octet_length(event) > 200 then 'want an id of 1 to 200 bytes, have ' || octet_length(event)
        when procaas_submit.payload is null then 'want a payload, have null: use the default, or ''null''::jsonb'
        when octet_length(procaas_submit.payload::text) > 1000000
            then 'want a payload of at most 1000000 bytes, have ' || octet_length(procaas_submit.payload::text)
    end;
begin
    if wrong is not null then
        raise invalid_parameter_value using message = 'procaas_submit: ' || wrong;
    end if;
    if exists (select from inbox_cell c where c.number > 0) then
        raise object_not_in_prerequisite_state using message = 'procaas_submit: no node takes events from here',
            hint = 'This is another database of an inbox. Submit in its first database, which --store names.';
    end if;
    if not exists (select from documents d where d.kind = 'subscription-group' and d.name = 'store/submitted/submitted') then
        raise object_not_in_prerequisite_state using message = 'procaas_submit: no node takes events from here',
            hint = 'Declare a subscription with broker: store, and start a node with it.';
    end if;
    insert into submitted (type, key, payload, event)
        values (procaas_submit.type, coalesce(procaas_submit.key, ''), procaas_submit.payload, event);
    return event;
end
$$
$format$, current_schema); end $do$;
-- +goose StatementEnd
revoke all on function procaas_submit(text, text, jsonb, text) from public;
