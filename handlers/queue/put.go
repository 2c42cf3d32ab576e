package queue

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"procaas/engine/store"

	"github.com/jackc/pgx/v5"
)

// PutTasks implements [store.TaskQueue]. Tasks without unique keys need one round trip.
func (s *Store) PutTasks(ctx context.Context, specs []Spec) ([]Put, error) {
	p, err := s.prepare(ctx, s.pool, specs)
	if err != nil {
		return nil, err
	}
	if len(p.unique) == 0 {
		err = s.send(ctx, func(b *pgx.Batch) { p.queuePlain(b, p.plain) })
	} else {
		err = s.tx(ctx, func(tx pgx.Tx) error { return p.run(ctx, tx) })
	}
	if err != nil {
		return nil, err
	}
	s.hintFrom(p.from())
	return p.out, nil
}

// from returns the places before which no task was put.
func (p *putting) from() map[string]place {
	first := map[string]place{}
	for _, i := range p.plain {
		spec := &p.specs[i]
		at := place{-spec.Priority, p.now.Add(spec.Tolerance)}
		if other, ok := first[spec.Type]; ok {
			at = earlier(other, at)
		}
		first[spec.Type] = at
	}
	for _, i := range p.unique {
		first[p.specs[i].Type] = headOfQueue // another task may have changed
	}
	return first
}

const notifyInside = "select pg_notify('procaas tasks ' || current_schema, $1)"

// PutTx stores tasks in a transaction of the caller. When it commits, they exist and workers get
// hints.
func (s *Store) PutTx(ctx context.Context, tx pgx.Tx, specs []Spec) ([]Put, error) {
	p, err := s.prepare(ctx, tx, specs)
	if err != nil {
		return nil, err
	}
	if err := p.run(ctx, tx); err != nil {
		return nil, readable(err)
	}
	text, err := json.Marshal(p.types)
	if err != nil || len(text) > hintBytes {
		text = []byte("[]")
	}
	if _, err := tx.Exec(ctx, notifyInside, string(text)); err != nil {
		return nil, err
	}
	return p.out, nil
}

// A putting is one batch of tasks to store.
type putting struct {
	specs  []Spec
	ids    []int64
	out    []Put
	plain  []int // indexes of specs
	unique []int
	types  []string
	now    time.Time // by the store's clock, when plain tasks were put
}

// prepare assigns ids to tasks, and refuses invalid ones.
func (s *Store) prepare(ctx context.Context, from drawer, specs []Spec) (*putting, error) {
	ids, err := s.takeIDs(ctx, from, len(specs))
	if err != nil {
		return nil, err
	}
	p := &putting{specs: specs, ids: ids, out: make([]Put, len(specs))}
	seen := map[string]bool{}
	for i := range specs {
		spec := &specs[i]
		if err := spec.Check(); err != nil {
			p.out[i] = Put{Outcome: store.PutRefused, Err: err}
			continue
		}
		p.out[i] = Put{ID: ids[i], Outcome: store.PutAdded}
		if spec.Unique == "" {
			p.plain = append(p.plain, i)
		} else {
			p.unique = append(p.unique, i)
		}
		if !seen[spec.Type] {
			seen[spec.Type] = true
			p.types = append(p.types, spec.Type)
		}
	}
	return p, nil
}

func (p *putting) run(ctx context.Context, tx pgx.Tx) error {
	var b pgx.Batch
	p.queuePlain(&b, p.plain)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil || len(p.unique) == 0 {
		return err
	}
	return p.putUnique(ctx, tx)
}

// The statement that stores tasks also refuses those of a draining type.
const (
	putNow = `
with put as materialized (
	select p.*, exists (select from task_types m where m.type = p.type and m.mode = 'draining') as closed
	from unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::smallint[], $6::text[], $7::text[], $8::bytea[])
		as p (id, tolerance, rank, timeout, slot, type, key, payload)
), added as (
	insert into tasks (id, deadline, rank, timeout, slot, type, key, payload)
	select id, now() + tolerance * interval '1 microsecond', rank, timeout, slot, type, key, payload from put where not closed
)
select 0::bigint, now()
union all select id, now() from put where closed`

	putTimed = `
with put as materialized (
	select p.*, greatest(now(), coalesce(p.at, now()) + p.delay * interval '1 microsecond') as due,
		exists (select from task_types m where m.type = p.type and m.mode = 'draining') as closed
	from unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::smallint[], $6::text[], $7::text[], $8::bytea[],
			$9::timestamptz[], $10::bigint[], $11::text[], $12::int[])
		as p (id, tolerance, rank, timeout, slot, type, key, payload, at, delay, uid, epoch)
), added as (
	insert into tasks (id, due, deadline, rank, timeout, slot, type, key, payload, uid, epoch)
	select id, due, due + tolerance * interval '1 microsecond', rank, timeout, slot, type, key, payload, uid, epoch
	from put where due <= now() and not closed
), later as (
	insert into task_schedule (id, created, due, deadline, rank, epoch, failures, lost, timeout, slot, type, key, uid, error, payload)
	select id, now(), due, due + tolerance * interval '1 microsecond', rank, epoch, 0, 0, timeout, slot, type, key, uid, '', payload
	from put where due > now() and not closed
)
select 0::bigint, now()
union all select id, now() from put where closed`
)

// columns are the arrays of a batch.
type columns struct {
	ids, tolerance, delay []int64
	rank, timeout, epoch  []int32
	slot                  []int16
	types, keys, uids     []string
	payloads              [][]byte
	at                    []*time.Time
}

func (c *columns) add(id int64, epoch int, s *Spec) {
	c.ids = append(c.ids, id)
	c.tolerance = append(c.tolerance, s.Tolerance.Microseconds())
	c.delay = append(c.delay, s.Delay.Microseconds())
	c.rank = append(c.rank, int32(-s.Priority))
	c.timeout = append(c.timeout, int32(s.Timeout.Milliseconds()))
	c.epoch = append(c.epoch, int32(epoch))
	c.slot = append(c.slot, int16(s.Slot()))
	c.types = append(c.types, s.Type)
	c.keys = append(c.keys, s.Key)
	c.uids = append(c.uids, s.Unique)
	c.payloads = append(c.payloads, payloadOf(s))
	var at *time.Time
	if !s.At.IsZero() {
		at = &s.At
	}
	c.at = append(c.at, at)
}

func payloadOf(s *Spec) []byte {
	if len(s.Payload) == 0 {
		return []byte("null")
	}
	return s.Payload
}

func (c *columns) now() []any {
	return []any{c.ids, c.tolerance, c.rank, c.timeout, c.slot, c.types, c.keys, c.payloads}
}

func (c *columns) timed() []any { return append(c.now(), c.at, c.delay, c.uids, c.epoch) }

func (p *putting) queuePlain(b *pgx.Batch, which []int) {
	if len(which) == 0 {
		return
	}
	var c columns
	timed := false
	for _, i := range which {
		c.add(p.ids[i], 0, &p.specs[i])
		timed = timed || p.specs[i].Delay > 0 || !p.specs[i].At.IsZero()
	}
	sql, args := putNow, c.now()
	if timed {
		sql, args = putTimed, c.timed()
	}
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		closed, now, err := readClosed(rows)
		p.now = now
		for _, id := range closed {
			p.out[slices.Index(p.ids, id)] = Put{Outcome: store.PutRefused, Err: store.ErrDraining}
		}
		return err
	})
}

// readClosed returns which tasks were refused, and when the others were put.
func readClosed(rows pgx.Rows) (closed []int64, now time.Time, err error) {
	var id int64
	_, err = pgx.ForEachRow(rows, []any{&id, &now}, func() error {
		if id != 0 {
			closed = append(closed, id)
		}
		return nil
	})
	return closed, now, err
}
