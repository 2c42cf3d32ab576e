package transfer

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"procaas/schemas"
)

// schemaSQL creates the tables of transfers on a shard. A barrier is a row whose change goes
// through the stream. An echo is the first change of each transaction of an applier, by which the
// stream of the other direction recognizes it. A position says how far the stream has been applied.
const schemaSQL = `
create table if not exists procaas.transfer_barrier (
	id    text primary key,
	token text not null
);
create table if not exists procaas.transfer_echo (
	id text primary key,
	n  bigint not null
);
create table if not exists procaas.transfer_position (
	id         text primary key,
	lsn        pg_lsn not null,
	step       text not null,
	updated_at timestamptz not null default now()
);`

const (
	schemaExists = `select count(*) = 3 from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'procaas' and c.relname in ('transfer_barrier', 'transfer_echo', 'transfer_position')`

	putBarrier = `insert into procaas.transfer_barrier (id, token) values ($1, $2)
on conflict (id) do update set token = excluded.token`
	putEcho = `insert into procaas.transfer_echo (id, n) values ($1, 1)
on conflict (id) do update set n = transfer_echo.n + 1`
	putPosition = `insert into procaas.transfer_position (id, lsn, step) values ($1, $2, $3)
on conflict (id) do update set lsn = excluded.lsn, step = excluded.step, updated_at = now()`
	movePosition = "update procaas.transfer_position set lsn = $2::pg_lsn, updated_at = now() where id = $1"
	readPosition = "select lsn, step from procaas.transfer_position where id = $1"
	dropBarrier  = "delete from procaas.transfer_barrier where id = $1"
	dropEcho     = "delete from procaas.transfer_echo where id = $1"
	dropPosition = "delete from procaas.transfer_position where id = $1"
)

// install creates the tables of transfers on a shard. It needs the right to create a schema, unless
// they exist.
func install(ctx context.Context, c *pgx.Conn) error {
	var done bool
	if err := c.QueryRow(ctx, schemaExists).Scan(&done); err != nil {
		return err
	}
	if done {
		return nil
	}
	err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		for _, sql := range []string{schemas.LockShard, schemas.MakeShard, schemaSQL} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("install the tables of transfers: %w", err)
	}
	return nil
}
