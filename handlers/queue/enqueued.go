package queue

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/store"
)

// enqueuedBytes bounds the payloads that one transaction takes. It may exceed this by the largest one.
const enqueuedBytes = 4 << 20

// Rows of procaas_enqueue become tasks in their order, so one process takes them at a time. Those of a draining type wait
// until it is resumed.
const (
	anyEnqueued = "select exists (select from enqueued)"
	// A transaction that began before the last one leaves them to others, unless the clock was put back.
	lockEnqueued = `
with mine as (select from enqueued_taken where at <= now() or at > now() + interval '1 minute' for update skip locked)
update enqueued_taken set at = now() where exists (select from mine) returning true`
	readEnqueued = `
with first as (
	select e.id, e.type, e.key, e.uid, e.priority, e.due, e.payload::text as body from enqueued e
	where not exists (select from task_types m where m.type = e.type and m.mode = 'draining') order by e.id limit $1
), sized as (select *, sum(octet_length(body)) over (order by id) - octet_length(body) as before from first)
select id, type, key, uid, priority, due, body from sized where before < $2 order by id`
	dropEnqueued = "delete from enqueued where id = any($1::bigint[])"
	buryEnqueued = `
insert into task_dead (id, created, due, tolerance, rank, epoch, failures, lost, timeout, slot, type, key, uid, worker, error, payload)
select id, now(), now(), interval '0', rank, 0, 0, 0, timeout, slot, type, key, '', '', error, payload
from unnest($1::bigint[], $2::int[], $3::int[], $4::smallint[], $5::text[], $6::text[], $7::text[], $8::bytea[])
	as d (id, rank, timeout, slot, type, key, error, payload)`
)

// A moving takes rows of procaas_enqueue into the queue.
type moving struct {
	rows []int64 // that are done with
	good []Spec
	from []int64 // the rows of good
	bad  []Spec
	why  []string // for each of bad
}

func (m *moving) refuse(row int64, spec Spec, why string) {
	m.rows, m.bad, m.why = append(m.rows, row), append(m.bad, spec), append(m.why, store.CutTaskText(why))
}

// TakeEnqueued implements [store.TaskEnqueued].
func (s *Store) TakeEnqueued(ctx context.Context, limit int, ready store.ReadyTask) (n int, err error) {
	var some bool
	if err := s.pool.QueryRow(ctx, anyEnqueued).Scan(&some); err != nil || !some {
		return 0, err
	}
	var put *putting
	err = s.tx(ctx, func(tx pgx.Tx) error {
		m := moving{}
		put = nil
		if err := m.read(ctx, tx, limit, ready); err != nil {
			return err
		}
		if len(m.good) > 0 {
			if put, err = s.prepare(ctx, tx, m.good); err != nil {
				return err
			}
			if err := put.run(ctx, tx); err != nil {
				return err
			}
		}
		for i, row := range m.from {
			switch failed := put.out[i].Err; {
			case failed == nil:
				m.rows = append(m.rows, row)
			case !errors.Is(failed, store.ErrDraining): // drained just now: it waits
				m.refuse(row, m.good[i], failed.Error())
			}
		}
		n = len(m.rows)
		return s.finish(ctx, tx, &m)
	})
	if err == nil && put != nil {
		s.hintFrom(put.from())
	}
	return n, err
}

// read reads the first rows, unless another process takes them now.
func (m *moving) read(ctx context.Context, tx pgx.Tx, limit int, ready store.ReadyTask) error {
	var mine bool
	err := tx.QueryRow(ctx, lockEnqueued).Scan(&mine)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, readEnqueued, limit, enqueuedBytes)
	if err != nil {
		return err
	}
	var row int64
	var one Spec
	var due *time.Time
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&row, &one.Type, &one.Key, &one.Unique, &one.Priority, &due, &payload}, func() error {
		spec := Spec{Type: one.Type, Key: one.Key, Unique: one.Unique, Priority: one.Priority, Payload: append([]byte(nil), payload...)}
		if due != nil {
			spec.At = *due
		}
		why, err := ready(&spec)
		if why != "" {
			m.refuse(row, spec, why)
		} else {
			m.good, m.from = append(m.good, spec), append(m.from, row)
		}
		return err
	})
	return err
}

// finish removes the rows, and keeps refused tasks as dead letters.
func (s *Store) finish(ctx context.Context, tx pgx.Tx, m *moving) error {
	if len(m.bad) > 0 {
		ids, err := s.takeIDs(ctx, tx, len(m.bad))
		if err != nil {
			return err
		}
		var c columns
		for i := range m.bad {
			c.add(ids[i], 0, &m.bad[i])
		}
		if _, err := tx.Exec(ctx, buryEnqueued, c.ids, c.rank, c.timeout, c.slot, c.types, c.keys, m.why, c.payloads); err != nil {
			return err
		}
	}
	if len(m.rows) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, dropEnqueued, m.rows)
	return err
}
