package shardmap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/schemas"
)

// These are the states of a placement on a shard.
const (
	Active = "active" // writers with the epoch may write
	Frozen = "frozen" // writers wait for the switch
	Moved  = "moved"  // another shard has it
	Closed = "closed" // it was opened for a transfer that was aborted
)

// CodeMoved is the SQLSTATE of procaas.guard if the placement is not here, frozen, or at another
// epoch.
const CodeMoved = "PC001"

// A Fence is a shard's state of a placement.
type Fence struct {
	Map, Key string
	Epoch    int64
	State    string
	Target   string // the shard that has it now, for Moved
	Owner    string // token of the transfer that last wrote it
	Attempt  int64  // number of the freeze within its transfer
}

// ErrFence reports that the shard already has a later epoch.
var ErrFence = errors.New("the shard knows of a later epoch")

// A Querier is a connection, a pool or a transaction.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

const writeFence = `select procaas.fence($1, $2, $3, $4, nullif($5, ''), nullif($6, ''), $7)`

// WriteFence changes the fence of a placement. It waits for current writers, and later ones wait
// for the end of its transaction.
func WriteFence(ctx context.Context, q Querier, f Fence) error {
	var done bool
	err := q.QueryRow(ctx, writeFence, f.Map, f.Key, f.Epoch, f.State, f.Target, f.Owner, f.Attempt).Scan(&done)
	if err == nil && !done {
		err = ErrFence
	}
	if err != nil {
		return fmt.Errorf("fence %s %s at epoch %d: %w", f.Map, f.Key, f.Epoch, err)
	}
	return nil
}

const readFence = `select map, key, epoch, state, coalesce(target, ''), coalesce(owner, ''), attempt
	from procaas.fences where map = $1 and key = $2`

// ReadFence returns the fence of a placement. ok is false if there is none.
func ReadFence(ctx context.Context, q Querier, shardMap, key string) (f Fence, ok bool, err error) {
	err = q.QueryRow(ctx, readFence, shardMap, key).Scan(&f.Map, &f.Key, &f.Epoch, &f.State, &f.Target, &f.Owner, &f.Attempt)
	if errors.Is(err, pgx.ErrNoRows) {
		return Fence{}, false, nil
	}
	return f, err == nil, err
}

const lockFence = `select pg_advisory_xact_lock(procaas.fence_lock($1, $2))`

// raiseFence writes a fence unless the shard has the same epoch or a later one, which a later
// transfer has written.
func raiseFence(ctx context.Context, tx pgx.Tx, f Fence) error {
	if _, err := tx.Exec(ctx, lockFence, f.Map, f.Key); err != nil {
		return fmt.Errorf("fence %s %s: %w", f.Map, f.Key, err)
	}
	have, known, err := ReadFence(ctx, tx, f.Map, f.Key)
	if err != nil || known && have.Epoch >= f.Epoch {
		return err
	}
	return WriteFence(ctx, tx, f)
}

const (
	installTable = `create table if not exists procaas.migrations (name text primary key, at timestamptz not null default now())`
	installMark  = `insert into procaas.migrations (name) values ($1) on conflict do nothing`
	confirmFirst = `insert into procaas.compared (timeline) values (procaas.timeline()) on conflict do nothing`
)

// confirmMap notes that the fences of a map need no comparison, unless it has some.
const confirmMap = `insert into procaas.compared_maps (map, timeline)
	select $1, procaas.timeline() where not exists (select from procaas.fences where map = $1) on conflict do nothing`

// installFence updates the schema procaas of a shard. A server without it has nothing to compare,
// so it accepts writes at once.
func installFence(ctx context.Context, tx pgx.Tx) error {
	for _, sql := range []string{schemas.LockShard, schemas.MakeShard, installTable} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("install the fence: %w", err)
		}
	}
	files, err := fs.Glob(schemas.Shards, "shards/*.sql")
	if err != nil {
		return err
	}
	for _, name := range files {
		tag, err := tx.Exec(ctx, installMark, name)
		if err != nil || tag.RowsAffected() == 0 {
			if err != nil {
				return fmt.Errorf("install the fence: %w", err)
			}
			continue
		}
		text, err := fs.ReadFile(schemas.Shards, name)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, string(text)); err != nil {
			return fmt.Errorf("install the fence: %s: %w", name, err)
		}
	}
	if _, err := tx.Exec(ctx, confirmFirst); err != nil {
		return fmt.Errorf("install the fence: %w", err)
	}
	return nil
}
