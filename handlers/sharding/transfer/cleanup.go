package transfer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/clock"
)

// Cleanup ends what a transfer keeps on both shards, and deletes the rows on the shard that lost
// the key. Its fence says so: the key has moved away, or was never opened there.
func (m *Mover) Cleanup(ctx context.Context) error {
	if err := m.load(ctx); err != nil {
		return err
	}
	if err := m.at("cleanup"); err != nil {
		return err
	}
	if err := m.dropStreams(ctx); err != nil {
		return err
	}
	if err := m.forget(ctx); err != nil {
		return err
	}
	// After the slots are released, and before anything is deleted to which the rows refer.
	if err := m.noneLeft(ctx); err != nil {
		return err
	}
	// On both: the fence check inside the statement spares the shard with the key.
	for _, c := range []*pgx.Conn{m.source, m.target} {
		if err := m.remove(ctx, c, "cleanup"); err != nil {
			return err
		}
	}
	return m.at("cleaned")
}

// forget removes the transfer's own rows on the shards.
func (m *sides) forget(ctx context.Context) error {
	for _, c := range []*pgx.Conn{m.source, m.target} {
		for _, id := range []string{m.direction(), m.against()} {
			for _, sql := range []string{dropPosition, dropEcho, dropBarrier} {
				if _, err := c.Exec(ctx, sql, id); err != nil {
					return fmt.Errorf("forget transfer %s: %w", m.spec.ID, err)
				}
			}
		}
	}
	return nil
}

const readDead = "select n_dead_tup, n_live_tup from pg_stat_user_tables where relid = $1::regclass"

// remove deletes the rows of the key on a shard that does not have it, children before parents. It
// goes along the primary key, because a new search from the start would read all dead rows again.
func (m *sides) remove(ctx context.Context, c *pgx.Conn, step string) error {
	if err := m.replica(ctx, c); err != nil {
		return err
	}
	var total int64
	for _, t := range slices.Backward(m.tables) {
		var there bool
		if err := c.QueryRow(ctx, "select to_regclass($1) is not null", t.quoted()).Scan(&there); err != nil {
			return err
		}
		if !there {
			continue // a target that was refused for this
		}
		deleted, err := m.removeFrom(ctx, c, t, step, total)
		if err != nil {
			return fmt.Errorf("delete from table %s: %w", t.title(), err)
		}
		total += deleted
	}
	m.report(Progress{Step: step, Rows: total, Total: total}, true)
	return nil
}

func (m *sides) removeFrom(ctx context.Context, c *pgx.Conn, t *shape, step string, before int64) (total int64, err error) {
	var last []string
	var sinceVacuum int64
	for {
		began := time.Now()
		sql, args := deleteSQL(t, m.limits.Batch, last)
		var n int64
		if err := c.QueryRow(ctx, sql, append([]any{m.spec.Map, m.spec.Key}, args...)...).Scan(&n, &last); err != nil {
			return total, err
		}
		total, sinceVacuum = total+n, sinceVacuum+n
		if n < int64(m.limits.Batch) {
			break
		}
		m.report(Progress{Step: step, Rows: before + total}, false)
		if err := clock.Sleep(ctx, min(time.Since(began), time.Second)); err != nil { // leave half of the time to others
			return total, err
		}
		if sinceVacuum >= m.limits.DeadRows {
			if err := m.vacuum(ctx, c, t); err != nil {
				return total, err
			}
			sinceVacuum = 0
		}
	}
	if total >= int64(m.limits.Batch) {
		return total, m.vacuum(ctx, c, t)
	}
	return total, nil
}

// vacuum vacuums a table with many dead rows. Autovacuum starts only at a fifth of a table.
func (m *sides) vacuum(ctx context.Context, c *pgx.Conn, t *shape) error {
	var dead, live int64
	if err := c.QueryRow(ctx, readDead, t.quoted()).Scan(&dead, &live); err != nil {
		return err
	}
	if dead < m.limits.DeadRows && dead*10 < live {
		return nil
	}
	_, err := c.Exec(ctx, "vacuum "+t.quoted())
	return err
}

// deleteSQL deletes a batch after a row, if the shard does not have the key. It returns the number
// of rows and the last one.
func deleteSQL(t *shape, batch int, last []string) (string, []any) {
	primary := t.primary
	if slices.ContainsFunc(primary, func(name string) bool { return t.column(name) == nil }) {
		primary = nil // a generated column, whose type is not known here
	}
	order := make([]string, len(primary))
	texts := make([]string, len(primary))
	behind := make([]string, len(primary))
	var args []any
	for i, name := range primary {
		order[i] = quote(name)
		texts[i] = "d." + quote(name) + "::text"
		behind[i] = fmt.Sprintf("$%d::text::%s", i+3, t.column(name).typ)
	}
	names, more := "", ""
	sorted, result := "", "'{}'::text[]"
	if len(order) > 0 {
		names = ", " + strings.Join(order, ", ")
		sorted = " order by " + strings.Join(order, ", ")
		if len(last) > 0 {
			more = " and (" + strings.Join(order, ", ") + ") > (" + strings.Join(behind, ", ") + ")"
			for _, v := range last {
				args = append(args, v)
			}
		}
		descending := make([]string, len(order))
		for i, name := range order { // with d., because a plain name would rather mean a column of the result
			descending[i] = "d." + name + " desc"
		}
		result = "coalesce((select array[" + strings.Join(texts, ", ") + "] from d order by " + strings.Join(descending, ", ") +
			" limit 1), '{}')"
	}
	return "with d as materialized (select ctid" + names + " from " + t.quoted() + " where " + t.where + more +
		" and exists (select from procaas.fences f where f.map = $1 and f.key = $2 and f.state in ('moved', 'closed'))" +
		sorted + " limit " + fmt.Sprint(batch) + "), gone as (delete from " + t.quoted() + " where ctid = any(array(select ctid from d)) " +
		"returning 1)" +
		" select (select count(*) from gone), " + result, args
}

// Undo ends a transfer that has not switched: it thaws the source, and the target keeps nothing.
func (m *Mover) Undo(ctx context.Context) error {
	if err := m.Claim(ctx); err != nil {
		return err
	}
	// Before anything that fails if the tables have changed: a slot would keep the source's log.
	if err := m.dropStreams(ctx); err != nil {
		return err
	}
	if err := m.load(ctx); err != nil {
		return err
	}
	if err := m.clear(ctx); err != nil {
		return err
	}
	return m.forget(ctx)
}
