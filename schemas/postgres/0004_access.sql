-- +goose Up

-- Who may call the API. value is JSON: the role, the paths, when it ends. A token that is revoked has an empty hash.
create table tokens (
    name     text collate "C" primary key,
    value    bytea       not null,
    hash     bytea       not null, -- SHA-256 of the token; the token itself is nowhere
    revision bigint      not null,
    changed  timestamptz not null,
    actor    text        not null,
    reason   text        not null
);

create index audit_name on audit (name text_pattern_ops, revision);

-- The audit is append-only. Only what is older than procaas.forget_before may go, which is set in the transaction that
-- lets old records go.
-- +goose StatementBegin
create function audit_is_kept() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        if old.changed < nullif(current_setting('procaas.forget_before', true), '')::timestamptz then
            return old;
        end if;
    end if;
    raise exception 'the audit is append-only: % is refused', lower(tg_op) using errcode = 'insufficient_privilege';
end
$$;
-- +goose StatementEnd

create trigger audit_is_kept before update or delete on audit for each row execute function audit_is_kept();
create trigger audit_is_kept_whole before truncate on audit for each statement execute function audit_is_kept();
