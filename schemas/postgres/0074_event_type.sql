-- +goose Up

-- The type of a stored event; null if the event is damaged. Looking for the events that a run waits for must not fail because of
-- another event of the key.
-- +goose StatementBegin
create or replace function event_type(event bytea) returns text language plpgsql immutable as $$
begin
    return convert_from(event, 'UTF8')::json ->> 'type';
exception when others then
    return null;
end
$$;
-- +goose StatementEnd
