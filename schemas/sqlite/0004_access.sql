-- +goose Up

-- Who may call the API. value is JSON: the role, the paths, when it ends. A token that is revoked has an empty hash.
create table tokens (
    name     text    primary key,
    value    blob    not null,
    hash     blob    not null, -- SHA-256 of the token; the token itself is nowhere
    revision integer not null,
    changed  integer not null,
    actor    text    not null,
    reason   text    not null
) strict, without rowid;

create index audit_name on audit (name, revision);

-- The audit is append-only. Only what is older than the horizon may go, and the horizon is moved in the transaction that
-- lets old records go.
create table audit_horizon (
    one           integer primary key check (one = 1),
    forget_before integer not null
) strict;
insert into audit_horizon values (1, 0);

-- +goose StatementBegin
create trigger audit_not_changed before update on audit begin
    select raise(abort, 'the audit is append-only: its records are not changed');
end;
-- +goose StatementEnd

-- +goose StatementBegin
create trigger audit_not_removed before delete on audit
when old.changed >= (select forget_before from audit_horizon) begin
    select raise(abort, 'the audit is append-only: its records are not removed');
end;
-- +goose StatementEnd
