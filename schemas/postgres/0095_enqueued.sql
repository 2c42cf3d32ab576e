-- +goose Up
-- procaas: works with 86

-- Tasks that programs enqueue in their own transactions, until a node has put them into the queue.
create table enqueued (
    id       bigint generated always as identity primary key,
    type     text collate "C" not null,
    key      text collate "C" not null, -- empty for none
    uid      text collate "C" not null, -- empty for none
    priority integer          not null,
    due      timestamptz, -- null for now
    payload  jsonb            not null
);

-- When the last transaction began that took some: tasks have the time of their transaction, and must keep their order. There is one row,
-- which whoever takes tasks locks.
create table enqueued_taken (
    one boolean     primary key default true check (one),
    at  timestamptz not null
);
insert into enqueued_taken (at) values (now());

-- Enqueues a task when the transaction of the caller commits.
-- +goose StatementBegin
do $do$ begin execute format($format$
create function procaas_enqueue(type text, payload jsonb default 'null', key text default '', unique_name text default '',
    priority integer default 0, due timestamptz default null) returns void
language plpgsql security definer set search_path = %I, pg_temp as $$
declare
    wrong text := case
        when coalesce(procaas_enqueue.type, '') = '' then 'want a type, have none'
        when octet_length(procaas_enqueue.type) > 512 then 'want a type of at most 512 bytes, have ' || octet_length(procaas_enqueue.type)
        when octet_length(procaas_enqueue.key) > 512 then 'want a key of at most 512 bytes, have ' || octet_length(procaas_enqueue.key)
        when octet_length(procaas_enqueue.unique_name) > 512
            then 'want a unique_name of at most 512 bytes, have ' || octet_length(procaas_enqueue.unique_name)
        when abs(coalesce(procaas_enqueue.priority, 0)::bigint) > 1000000
            then 'want a priority from -1000000 to 1000000, have ' || procaas_enqueue.priority
        when procaas_enqueue.due > now() + interval '3650 days' then 'want a time within ten years, have ' || procaas_enqueue.due
        when octet_length(procaas_enqueue.payload::text) > 1000000
            then 'want a payload of at most 1000000 bytes, have ' || octet_length(procaas_enqueue.payload::text)
    end;
begin
    if wrong is not null then
        raise invalid_parameter_value using message = 'procaas_enqueue: ' || wrong;
    end if;
    if exists (select from inbox_cell) then
        raise object_not_in_prerequisite_state using message = 'procaas_enqueue: no node takes tasks from here',
            hint = 'This is a database of an inbox, where tasks of one name may be elsewhere. Put tasks over HTTP.';
    end if;
    insert into enqueued (type, key, uid, priority, due, payload) values (procaas_enqueue.type, coalesce(procaas_enqueue.key, ''),
        coalesce(procaas_enqueue.unique_name, ''), coalesce(procaas_enqueue.priority, 0), procaas_enqueue.due,
        coalesce(procaas_enqueue.payload, 'null'));
    perform pg_notify('procaas tasks ' || current_schema, '["procaas enqueued"]');
end
$$
$format$, current_schema); end $do$;
-- +goose StatementEnd
revoke all on function procaas_enqueue(text, jsonb, text, text, integer, timestamptz) from public;
