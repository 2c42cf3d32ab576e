package sql

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/clock"
	"procaas/handlers/sql/language"
)

// DDL makes the table of keys, in the first schema of the search path.
const DDL = `create table procaas_applied (
	key     text primary key,
	applied timestamptz not null default now(),
	result  json
);
create index procaas_applied_applied on procaas_applied (applied);
`

const (
	forgetKeys = `delete from procaas_applied where key = any (array(
	select key from procaas_applied where applied < now() - make_interval(secs => $1) order by applied limit $2 for update skip locked))`

	forgetEvery = time.Minute
	forgetBatch = 1000
	forgetMost  = 100 // batches at once, so that other databases have their turn
	forgetTime  = 10 * time.Second
)

// Run removes old keys until ctx ends.
func (p *Pool) Run(ctx context.Context) {
	for clock.Pause(ctx, forgetEvery) {
		p.forgetOld(ctx)
	}
}

// forgetOld removes the old keys of all databases that have some. Other nodes do so at the same time.
func (p *Pool) forgetOld(ctx context.Context) {
	for c, d := range p.applying() {
		for range forgetMost {
			n, err := c.forget(ctx, d)
			if err != nil && ctx.Err() == nil {
				p.o.Log.Warn("old rows of procaas_applied stay", "database", d.ID, "error", err)
			}
			if err != nil || n < forgetBatch {
				break
			}
		}
		p.release(c)
	}
}

// applying returns the connections whose databases have keys. Each is to be released.
func (p *Pool) applying() map[*connection]*language.Database {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[*connection]*language.Database{}
	for _, c := range p.all {
		if c.applies {
			c.users++
			out[c] = c.of
		}
	}
	return out
}

// forget removes a batch of old keys, and returns how many.
func (c *connection) forget(ctx context.Context, d *language.Database) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, forgetTime)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, c, pgx.TxOptions{BeginQuery: begin(d, forgetTime, false)}, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, forgetKeys, d.KeepKeys.Seconds(), forgetBatch)
		n = int(tag.RowsAffected())
		return err
	})
	return n, err
}
