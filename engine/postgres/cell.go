package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/model"
	"procaas/engine/pgkit"
	"procaas/engine/store"
)

// This file makes the store a cell: one of several databases that share an inbox. It has some of
// the slots and refuses the others. See [store.Cell].

// A cell has some slots of an inbox. It gives slots away and takes others.
type cell struct{ db *database }

// The lock of the slots: a transaction that accepts events holds it shared, and one that changes
// the slots holds it exclusively. It comes before all other locks.
const (
	lockSlots      = pgkit.LockSlots
	lockSlotsAlone = "select pg_advisory_xact_lock(('inbox_slots'::regclass::oid::bigint - 2147483648)::int, 0)"
	// A transaction that waits for the exclusive lock blocks all later ones.
	slotsPatience = "set local lock_timeout = '1s'"
)

const (
	readCellID = "select inbox, name, number from inbox_cell"
	readOpen   = "select slot from inbox_slots where state = 'open' and slot = any ($1::int[])"
	readSlots  = "select slot, state, move from inbox_slots order by slot"
)

// IsAway implements [store.Enrolment].
func (c cell) IsAway(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || IsAway(err)
}

// EnrolledAs implements [store.Enrolment].
func (c cell) EnrolledAs(ctx context.Context) (b store.CellID, err error) {
	err = c.db.pool.QueryRow(ctx, readCellID).Scan(&b.Inbox, &b.Name, &b.Number)
	if errors.Is(err, pgx.ErrNoRows) {
		return store.CellID{}, nil
	}
	return b, err
}

// refuseCell refuses to use one database of an inbox as if it were the whole inbox.
func refuseCell(b store.CellID) error {
	switch {
	case b.Name == "":
		return nil
	case b.Number == 0:
		return errors.New("the inbox is spread over several databases, of which this is the home: name the others by --cell " +
			"NAME=postgres://…")
	}
	return fmt.Errorf("the database is cell %s of an inbox over several databases: give that of its home as --store, and this one as "+
		"--cell %s=…", b.Name, b.Name)
}

const (
	insertCellID = "insert into inbox_cell (inbox, name, number) values ($1, $2, $3)"
	openAll      = "insert into inbox_slots (slot, state) select n, 'open' from generate_series(0, $1::int - 1) n"
	readUse      = `select exists (select from nodes join leases using (node) where gone is null and lease_until >= clock_timestamp()),
	exists (select from runs) or exists (select from history) or exists (select from keys)
	or exists (select from tasks) or exists (select from task_schedule) or exists (select from task_dead)`
	// Positions of cells are distinct, because each cell has its own remainder modulo the number of
	// cells.
	spreadSeq = `select setval(pg_get_serial_sequence('runs', 'seq'), n - n % $2 + $2 + $3, false)
	from (select greatest(coalesce(pg_sequence_last_value(pg_get_serial_sequence('runs', 'seq')::regclass), 0), $1::bigint) as n) l`
)

// Enroll implements [store.Enrolment].
func (c cell) Enroll(ctx context.Context, b store.CellID, all bool) error {
	err := c.db.tx(ctx, func(t *tx) error { return enroll(ctx, t, b, all) })
	if err != nil {
		return fmt.Errorf("enroll as %s: %w", b.Name, err)
	}
	c.db.cell.Store(true)
	return nil
}

func enroll(ctx context.Context, t *tx, b store.CellID, all bool) error {
	t.queue(takeTime) // it builds indexes
	t.queue(lockSlotsAlone)
	var have []store.CellID
	var live, used bool
	t.queue(readCellID).Query(rows(&have, func(r pgx.CollectableRow) (b store.CellID, err error) {
		return b, r.Scan(&b.Inbox, &b.Name, &b.Number)
	}))
	t.queue(readUse).QueryRow(value(&live, &used))
	if err := t.send(ctx); err != nil {
		return err
	}
	switch {
	case len(have) > 0 && (have[0].Inbox != b.Inbox || have[0].Name != b.Name || have[0].Number != b.Number):
		return fmt.Errorf("the database is cell %s, number %d, of inbox %s: %w", have[0].Name, have[0].Number, have[0].Inbox, store.ErrConflict)
	case len(have) > 0:
		return t.commit(ctx)
	case live:
		return fmt.Errorf("nodes work on the database that do not know of cells; stop them first: %w", store.ErrConflict)
	case used && !all:
		return fmt.Errorf("the database has runs, keys or tasks of its own; a new cell has to be empty: %w", store.ErrConflict)
	}
	t.queue(insertCellID, b.Inbox, b.Name, b.Number)
	if all {
		t.queue(openAll, store.InboxSlots+store.TaskSlots)
	} else {
		t.queue("update settings set serving = '', served = 0") // the home's value counts
	}
	t.queue("select inbox_spread_tasks()")
	t.queue("create index if not exists runs_inbox_slot on runs (inbox_slot(key))")
	t.queue("create index if not exists keys_inbox_slot on keys (inbox_slot(key), flow, key)")
	t.queue(fmt.Sprintf("alter table runs alter column seq set increment by %d", store.MaxCells))
	if err := t.send(ctx); err != nil {
		return err
	}
	t.queue(spreadSeq, b.After, store.MaxCells, b.Number)
	return t.commit(ctx)
}

// Slots implements [store.SlotMoves].
func (c cell) Slots(ctx context.Context) ([]store.CellSlot, error) {
	r, err := c.db.pool.Query(ctx, readSlots)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(r, func(r pgx.CollectableRow) (c store.CellSlot, err error) {
		return c, r.Scan(&c.Slot, &c.State, &c.Move)
	})
}

// Last implements [store.Enrolment].
func (c cell) Last(ctx context.Context) (last int64, err error) {
	err = c.db.pool.QueryRow(ctx, "select coalesce(pg_sequence_last_value(pg_get_serial_sequence('runs', 'seq')::regclass), 0)").Scan(&last)
	return last, err
}

// Now implements [store.Enrolment].
func (c cell) Now(ctx context.Context) (micros int64, err error) {
	err = c.db.pool.QueryRow(ctx, "select (extract(epoch from clock_timestamp()) * 1000000)::bigint").Scan(&micros)
	return micros, err
}

// Serving implements [store.Enrolment].
func (c cell) Serving(ctx context.Context) (split string, revision int64, err error) {
	err = c.db.pool.QueryRow(ctx, "select serving, served from settings").Scan(&split, &revision)
	return split, revision, err
}

// Serve implements [store.Enrolment].
func (c cell) Serve(ctx context.Context, split string, revision int64) error {
	_, err := c.db.pool.Exec(ctx, "update settings set serving = $1, served = $2 where served < $2", split, revision)
	return err
}

func wantedSlots(in []*intake) []int32 {
	slots := make([]int32, len(in))
	for i, r := range in {
		slots[i] = int32(store.InboxSlot(r.Key))
	}
	return slots
}

// fence returns which of the events have open slots here, and keeps these slots open until the end
// of the transaction. A store that is not a cell has all slots.
func (t *tx) fence(ctx context.Context, in []*intake) (here, elsewhere []*intake, err error) {
	if !t.cell || len(in) == 0 {
		return in, nil, nil
	}
	wanted := wantedSlots(in)
	var open []int32
	t.queue(lockSlots)
	t.queue(readOpen, wanted).Query(rows(&open, pgx.RowTo[int32]))
	if err := t.send(ctx); err != nil {
		return nil, nil, err
	}
	has := make(map[int32]bool, len(open))
	for _, slot := range open {
		has[slot] = true
	}
	for i, r := range in {
		if has[wanted[i]] {
			here = append(here, r)
			continue
		}
		r.left, r.result = true, store.Accepted{Err: store.ErrMoving}
		elsewhere = append(elsewhere, r)
	}
	return here, elsewhere, nil
}

// A parcel is a stored event of the outbox.
type parcel struct {
	ID       string          `json:"id"`
	Event    json.RawMessage `json:"event"`
	Hash     string          `json:"hash"`
	Flow     string          `json:"flow"`
	Key      string          `json:"key"`
	Ordered  bool            `json:"ordered"`
	Block    bool            `json:"block"`
	Pipeline string          `json:"pipeline"`
}

const (
	waitingOutside = "select distinct slot from inbox_outbox where slot = any ($1::int[])"
	insertOutbox   = `insert into inbox_outbox (slot, origin, intake)
	select slot, origin, intake from unnest($1::int[], $2::int[], $3::bytea[]) with ordinality as i (slot, origin, intake, at) order by i.at`
	readOutbox   = "select number, intake from inbox_outbox where slot <> all ($1::int[]) and number <> all ($2::bigint[]) order by number limit $3"
	listOutbox   = "select number from inbox_outbox where slot <> all ($1::int[]) and number <> all ($2::bigint[]) order by number limit $3"
	readParcel   = "select number, intake from inbox_outbox where number = $1"
	deleteOutbox = "delete from inbox_outbox where number = any ($1::bigint[])"
)

// fenceEmits is fence for events that runs emit. If the outbox has events for a slot, new ones go
// behind them.
func (t *tx) fenceEmits(ctx context.Context, in []*intake) (here, elsewhere []*intake, err error) {
	if !t.cell || len(in) == 0 {
		return in, nil, nil
	}
	var behind []int32
	t.queue(waitingOutside, wantedSlots(in)).Query(rows(&behind, pgx.RowTo[int32]))
	if here, elsewhere, err = t.fence(ctx, in); err != nil || len(behind) == 0 {
		return here, elsewhere, err
	}
	waits := make(map[int]bool, len(behind))
	for _, slot := range behind {
		waits[int(slot)] = true
	}
	here, elsewhere = nil, nil
	for _, r := range in {
		if r.left || waits[store.InboxSlot(r.Key)] {
			r.left = true
			elsewhere = append(elsewhere, r)
			continue
		}
		here = append(here, r)
	}
	return here, elsewhere, nil
}

// queueOutbox stores the events for other cells, if the changes that emit them are written.
func (t *tx) queueOutbox(elsewhere []*intake) error {
	var slots, origins []int
	var texts [][]byte
	for _, r := range elsewhere {
		if r.from.refused != nil {
			continue
		}
		text, err := json.Marshal(parcel{r.ID, r.event, r.Hash, r.Flow, r.Key, r.Ordered, r.Block, r.Pipeline})
		if err != nil {
			return err
		}
		slots, origins = append(slots, store.InboxSlot(r.Key)), append(origins, store.InboxSlot(r.from.key))
		texts = append(texts, text)
	}
	if len(slots) > 0 {
		t.queue(insertOutbox, slots, origins, texts)
	}
	return nil
}

// OutboxEvents implements [store.Outbox].
func (c cell) OutboxEvents(ctx context.Context, slots []int, numbers []int64, limit int) ([]store.OutboxEvent, error) {
	if slots == nil {
		slots = []int{} // null would match nothing
	}
	if numbers == nil {
		numbers = []int64{}
	}
	events, err := c.parcels(ctx, readOutbox, slots, numbers, limit)
	if isDamage(err) {
		return c.parcelsApart(ctx, slots, numbers, limit)
	}
	return events, err
}

// parcels reads events of the outbox.
func (c cell) parcels(ctx context.Context, query string, args ...any) ([]store.OutboxEvent, error) {
	r, err := c.db.pool.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(r, func(r pgx.CollectableRow) (out store.OutboxEvent, err error) {
		var text []byte
		if err := r.Scan(&out.Number, &text); err != nil {
			return out, err
		}
		out.Intake, out.Damage = decodeParcel(text)
		return out, nil
	})
}

// parcelsApart is OutboxEvents when the server cannot read some row. It reads each row by itself.
func (c cell) parcelsApart(ctx context.Context, slots []int, numbers []int64, limit int) (out []store.OutboxEvent, err error) {
	r, err := c.db.pool.Query(ctx, listOutbox, slots, numbers, limit)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(r, pgx.RowTo[int64])
	if err != nil {
		return nil, err
	}
	for _, number := range list {
		one, err := c.parcels(ctx, readParcel, number)
		if isDamage(err) {
			one, err = []store.OutboxEvent{{Number: number, Damage: err}}, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, one...)
	}
	return out, nil
}

func decodeParcel(text []byte) (model.Intake, error) {
	var p parcel
	if err := json.Unmarshal(text, &p); err != nil {
		return model.Intake{}, err
	}
	event, err := store.DecodeEvent(p.Event)
	return model.Intake{
		ID: p.ID, Event: event, Hash: p.Hash, Flow: p.Flow, Key: p.Key,
		Ordered: p.Ordered, Block: p.Block, Pipeline: p.Pipeline, Dedup: true,
	}, err
}

// The count stops early, because callers ask often and only need to know whether there is much.
const readLoad = `select (select count(*) from inbox_slots where state = 'frozen'),
	(select count(*) from (select from inbox_outbox limit 1000) o),
	coalesce((select extract(epoch from clock_timestamp() - emitted) * 1000000 from inbox_outbox order by number limit 1), 0)::bigint`

// Load implements [store.Enrolment].
func (c cell) Load(ctx context.Context) (l store.CellLoad, err error) {
	var micros int64
	err = c.db.pool.QueryRow(ctx, readLoad).Scan(&l.Frozen, &l.Outbox, &micros)
	l.Oldest = time.Duration(max(micros, 0)) * time.Microsecond
	return l, err
}

// Sent implements [store.Outbox].
func (c cell) Sent(ctx context.Context, parcels []int64) error {
	if len(parcels) == 0 {
		return nil
	}
	_, err := c.db.pool.Exec(ctx, deleteOutbox, parcels)
	return err
}
