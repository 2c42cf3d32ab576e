package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"procaas/engine/store"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// This file moves slots between cells. The slot of a key determines which rows belong to a slot.
//
// At each moment at most one cell serves a slot, which is one where its row is open. Whoever accepts, claims or promotes holds the lock of
// the slots shared and reads that row. Whoever changes it holds the lock alone. So a change of the row is seen by everything that begins
// later, and nothing that began earlier is still under way. Runs that are set aside have the place away, which no statement for runs of the
// cell matches. All functions may be repeated after an answer that was lost.

// Each count stops early, so that a slot with a million rows costs no more than others.
const weighSlots = `select (select count(*) from (select from runs where inbox_slot(key) = w.slot limit $2) r)
	+ (select count(*) from (select from keys where inbox_slot(key) = w.slot limit $2) k)
	from unnest($1::int[]) with ordinality as w (slot, at) order by at`

// Weigh implements [store.SlotMoves].
func (c cell) Weigh(ctx context.Context, slots []int, most int) (found []int, err error) {
	r, err := c.db.pool.Query(ctx, weighSlots, slots, most)
	if err == nil {
		found, err = pgx.CollectRows(r, pgx.RowTo[int])
	}
	if err != nil {
		return nil, fmt.Errorf("weigh slots: %w", err)
	}
	return found, nil
}

const loadOfSlots = `select slot, sum(n)::bigint from (
	select inbox_slot(key) as slot, count(*) as n from runs where place <> 'away' group by 1
	union all select inbox_slot(key), count(*) from keys group by 1
	union all select slot * $1::int, count(*) from tasks group by 1) l group by slot`

// Loads implements [store.SlotMoves].
func (c cell) Loads(ctx context.Context) (map[int]int64, error) {
	found, slot, load := map[int]int64{}, 0, int64(0)
	err := c.db.freely(ctx, loadOfSlots, []any{store.InboxSlots / store.TaskSlots}, func(r pgx.Rows) error {
		_, err := pgx.ForEachRow(r, []any{&slot, &load}, func() error { found[slot] = load; return nil })
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("loads of slots: %w", err)
	}
	return found, nil
}

const (
	// Slots of another move, or slots that are not here.
	notFreezable = `select count(*) from unnest($2::int[]) w (slot) left join inbox_slots s using (slot)
	where s.state is null or s.state = 'arriving' or s.state = 'frozen' and s.move <> $1`
	freezeSlots = "update inbox_slots set state = 'frozen', move = $1 where slot = any ($2::int[]) and state = 'open'"
	countFrozen = "select count(*) from inbox_slots where move = $1 and slot = any ($2::int[]) and state = 'frozen'"
	// The newest runs first, so that the remaining runs of a key are always its oldest, and none
	// overtakes one that is set aside. Materialized, because the order must not make the planner
	// scan the runs of all slots.
	setAside = `with mine as materialized (
		select seq from runs where inbox_slot(key) = any ($1::int[]) and place not in ('running', 'away')),
	last as materialized (select seq from mine order by seq desc limit $2)
	update runs set was = place, place = 'away' where place not in ('running', 'away') and seq = any (array (select seq from last))`
	// A run that its node releases meanwhile is not set aside. The next try does that.
	countLeft = "select count(*) from runs where inbox_slot(key) = any ($1::int[]) and place <> 'away'"
)

// asideAtOnce bounds the runs that one transaction sets aside.
const asideAtOnce = 5000

// Freeze implements [store.SlotMoves]. It stops the slots in a transaction of its own, because the
// whole cell waits for it, and sets their runs aside after that.
func (c cell) Freeze(ctx context.Context, move string, slots []int) (left int, err error) {
	if len(slots) > 0 && slots[0] >= store.InboxSlots { // tasks can be done anywhere
		if err := c.db.tx(ctx, func(t *tx) error { return stopSlots(ctx, t, move, slots) }); err != nil {
			return 0, fmt.Errorf("freeze slots of tasks: %w", err)
		}
		return 0, nil
	}
	still, more := false, true
	aside := func(t *tx) (err error) {
		still, left, more, err = setRunsAside(ctx, t, move, slots)
		return err
	}
	if err = c.db.tx(ctx, aside); err == nil && !still {
		err = c.db.tx(ctx, func(t *tx) error { return stopSlots(ctx, t, move, slots) })
		more = true
	}
	for err == nil && more {
		if err = c.db.tx(ctx, aside); err == nil && !still {
			err = fmt.Errorf("somebody has thawed the slots: %w", store.ErrConflict)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("freeze slots: %w", err)
	}
	return left, nil
}

// stopSlots makes the slots accept nothing.
func stopSlots(ctx context.Context, t *tx, move string, slots []int) error {
	bad := 0
	t.queue(slotsPatience)
	t.queue(lockSlotsAlone)
	t.queue(notFreezable, move, slots).QueryRow(value(&bad))
	if err := t.send(ctx); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d of the slots are not open here: %w", bad, store.ErrConflict)
	}
	t.queue(freezeSlots, move, slots)
	return t.commit(ctx)
}

// setRunsAside sets aside some idle runs of slots. It prevents a thaw meanwhile, because nothing
// would bring the runs back. left is how many runs remain. more reports whether some of them can be
// set aside at once.
func setRunsAside(ctx context.Context, t *tx, move string, slots []int) (still bool, left int, more bool, err error) {
	frozen := 0
	t.queue(lockSlots)
	t.queue(countFrozen, move, slots).QueryRow(value(&frozen))
	if err := t.send(ctx); err != nil || frozen < len(slots) {
		return false, 0, false, err
	}
	t.queue(setAside, slots, asideAtOnce).Exec(func(c pgconn.CommandTag) error { more = c.RowsAffected() == asideAtOnce; return nil })
	t.queue(countLeft, slots).QueryRow(value(&left))
	return true, left, more, t.commit(ctx)
}

const (
	slotsOf    = "select slot from inbox_slots where move = $1 and state = $2 order by slot"
	openSlots  = "update inbox_slots set state = 'open' where move = $1 and state = $2"
	leaveSlots = "delete from inbox_slots where move = $1 and state = $2"
	dropAway   = "delete from runs where inbox_slot(key) = any ($1::int[]) and place = 'away'"
	dropKeys   = "delete from keys where inbox_slot(key) = any ($1::int[])"
	dropOutbox = "delete from inbox_outbox where origin = any ($1::int[])"
	// A run that its node still had may have ended meanwhile and changed the state, so deferred
	// runs are queued again.
	bringBack = `update runs set place = case was when 'deferred' then 'queued' else was end, was = null
	where inbox_slot(key) = any ($1::int[]) and place = 'away'`
	// Parked runs whose wait has ended meanwhile.
	stirSlots = `update runs r set place = 'ready' where inbox_slot(r.key) = any ($1::int[]) and r.ordered and r.place = 'parked'
	and r.awaits is not null
	and exists (select from runs q where q.flow = r.flow and q.key = r.key and q.place = 'queued' and q.bundle = ''
		and q.seq > r.heard and r.awaits::jsonb ? event_type(q.event))`
)

var promoteSlots = promoting(`with mine as materialized (select flow, key, place from runs where inbox_slot(key) = any ($1::int[]))
	select distinct flow, key from mine where place = 'queued'`)

// takeTime lifts the timeouts for a transaction that writes a row for each run of its slots. If it
// were cut off, it would be retried and cut off again, and no cell would serve the slots.
const takeTime = `select set_config('statement_timeout', '0', true),
	case when current_setting('server_version_num')::int >= 170000 then set_config('transaction_timeout', '0', true) end`

// setOut returns the slots of a move that have a state, and holds the lock of the slots.
func setOut(ctx context.Context, t *tx, move string, state store.SlotState) (slots []int32, err error) {
	t.queue(takeTime)
	t.queue(slotsPatience)
	t.queue(lockSlotsAlone)
	t.queue(slotsOf, move, state).Query(rows(&slots, pgx.RowTo[int32]))
	return slots, t.send(ctx)
}

// reopen lets the cell serve the slots of a move. Keys are promoted after all of their runs are back, since the first of them must begin.
// Parked runs come last: what they wait for may have been set aside with them.
func reopen(ctx context.Context, t *tx, move string, from store.SlotState, slots []int32) error {
	t.queue(openSlots, move, from)
	t.queue(bringBack, slots)
	t.queue(promoteSlots, slots)
	t.queue(stirSlots, slots)
	t.readyAt(headOfQueue)
	return t.send(ctx)
}

// Thaw implements [store.SlotMoves].
func (c cell) Thaw(ctx context.Context, move string) error {
	err := c.db.tx(ctx, func(t *tx) error {
		came, err := setOut(ctx, t, move, store.SlotArriving)
		if err != nil {
			return err
		}
		var went []int32
		t.queue(slotsOf, move, store.SlotFrozen).Query(rows(&went, pgx.RowTo[int32]))
		if len(came) > 0 {
			t.queue(leaveSlots, move, store.SlotArriving)
			t.queue(dropAway, came)
			t.queue(dropKeys, came)
			t.queue(dropOutbox, came)
		}
		if err := t.send(ctx); err != nil {
			return err
		}
		if len(went) > 0 {
			if err := reopen(ctx, t, move, store.SlotFrozen, went); err != nil {
				return err
			}
		}
		return t.commit(ctx)
	})
	if err != nil {
		return fmt.Errorf("thaw slots: %w", err)
	}
	return nil
}

const (
	notReceivable = "select count(*) from inbox_slots where slot = any ($2::int[]) and not (state = 'arriving' and move = $1)"
	arriveSlots   = `insert into inbox_slots (slot, state, move) select n, 'arriving', $1 from unnest($2::int[]) n
	on conflict do nothing`
)

// Arrive implements [store.SlotMoves]. It deletes what an earlier try has brought. Import skips rows that exist, so an old version of a row
// would otherwise stay.
func (c cell) Arrive(ctx context.Context, move string, slots []int) error {
	err := c.db.tx(ctx, func(t *tx) error {
		bad := 0
		t.queue(takeTime)
		t.queue(slotsPatience)
		t.queue(lockSlotsAlone)
		t.queue(notReceivable, move, slots).QueryRow(value(&bad))
		if err := t.send(ctx); err != nil {
			return err
		}
		if bad > 0 {
			return fmt.Errorf("%d of the slots are here, or come by another move: %w", bad, store.ErrConflict)
		}
		t.queue(arriveSlots, move, slots)
		t.queue(dropAway, slots)
		t.queue(dropKeys, slots)
		t.queue(dropOutbox, slots)
		return t.commit(ctx)
	})
	if err != nil {
		return fmt.Errorf("await slots: %w", err)
	}
	return nil
}

// These bound a part of an export. A part has at least one row.
const (
	exportRows  = 2000
	exportBytes = 4 << 20
)

// These return the rows as JSON, which is exact for bytea and times, and the place of the last row.
const (
	exportRuns = `with page as (
		select seq, coalesce(sum(octet_length(event) + coalesce(octet_length(checkpoint), 0))
			over (order by seq rows between unbounded preceding and 1 preceding), 0) as before
		from runs where inbox_slot(key) = any ($1::int[]) and place = 'away' and seq > $2::bigint order by seq limit $3)
	select coalesce(json_agg(r order by r.seq), '[]')::text, coalesce(max(r.seq)::text, '')
	from page join runs r using (seq) where page.before < $4::bigint`
	exportKeys = `select coalesce(json_agg(k order by k.slot, k.flow, k.key), '[]')::text,
	coalesce((array_agg(json_build_array(k.slot, k.flow, k.key) order by k.slot desc, k.flow desc, k.key desc))[1]::text, '') from (
	select inbox_slot(key) as slot, flow, key, state, shared from keys where inbox_slot(key) = any ($1::int[])
	and (inbox_slot(key), flow, key) > ($2::int, $3::text, $4::text) order by inbox_slot(key), flow, key limit $5) k`
	exportOutbox = `with page as (
		select number, coalesce(sum(octet_length(intake)) over (order by number rows between unbounded preceding and 1 preceding), 0) as before
		from inbox_outbox where origin = any ($1::int[]) and number > $2::bigint order by number limit $3)
	select coalesce(json_agg(o order by o.number), '[]')::text, coalesce(max(o.number)::text, '')
	from page join inbox_outbox o using (number) where page.before < $4::bigint`
	// A part reads a fixed number of rows, whatever their slots. A row without a slot goes with
	// every slot: it is older than the cells.
	exportEvents = `with page as (
		select e.source, e.id, e.run, e.hash, e.accepted, e.kept_for, coalesce(e.slot, inbox_slot(coalesce(
			(select r.key from runs r where r.id = e.run), (select h.key from history h where h.id = e.run limit 1)))) as slot
		from events e where (e.source, e.id) > ($2::text, $3::text) and e.accepted >= to_timestamp($4::bigint / 1000000.0)
		order by e.source, e.id limit $5)
	select coalesce((select json_agg(p) from page p where slot = any ($1::int[]) or slot is null), '[]')::text,
	coalesce((select json_build_array(source, id)::text from page order by source desc, id desc limit 1), '')`
)

// exportRecent is for ids accepted since a time. They are few, so one part has all of them, because
// the slots are frozen meanwhile.
var exportRecent = strings.Replace(exportEvents, "order by e.source, e.id limit", "and (e.slot is null or e.slot = any ($1::int[])) "+
	"order by e.source, e.id limit", 1)

// Export implements [store.SlotMoves].
func (c cell) Export(ctx context.Context, what store.CellPart, slots []int, since int64,
	cursor string,
) (text []byte, next string, err error) {
	sql, args := "", []any{slots}
	switch what {
	case store.CellRuns, store.CellOutbox:
		from := 0
		if cursor != "" {
			if from, err = strconv.Atoi(cursor); err != nil {
				return nil, "", store.ErrCursor
			}
		}
		sql = exportRuns
		if what == store.CellOutbox {
			sql = exportOutbox
		}
		args = append(args, from, exportRows, exportBytes)
	case store.CellKeys:
		slot, flow, key := -1, "", ""
		if cursor != "" {
			if err := json.Unmarshal([]byte(cursor), &[]any{&slot, &flow, &key}); err != nil {
				return nil, "", store.ErrCursor
			}
		}
		sql, args = exportKeys, append(args, slot, flow, key, exportRows)
	default:
		source, id := "", ""
		if cursor != "" {
			if err := json.Unmarshal([]byte(cursor), &[]any{&source, &id}); err != nil {
				return nil, "", store.ErrCursor
			}
		}
		sql = exportEvents
		if since > 0 {
			sql = exportRecent
		}
		args = append(args, source, id, since, exportRows)
	}
	err = c.db.freely(ctx, sql, args, func(r pgx.Rows) error {
		_, err := pgx.ForEachRow(r, []any{&text, &next}, func() error { return nil })
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("export %s: %w", what, err)
	}
	return text, next, nil
}

var imports = map[store.CellPart]string{
	store.CellRuns: "insert into runs overriding system value select * from json_populate_recordset(null::runs, $1::json) on " +
		"conflict do nothing",
	store.CellKeys: `insert into keys (flow, key, state, shared) select flow, key, state, shared
	from json_populate_recordset(null::keys, $1::json)
	on conflict do nothing`,
	store.CellOutbox: `insert into inbox_outbox (slot, origin, intake)
	select slot, origin, intake from json_populate_recordset(null::inbox_outbox, $1::json) order by number`,
	store.CellEvents: `insert into events (source, id, run, hash, accepted, kept_for, slot)
	select source, id, run, hash, accepted, kept_for, slot from json_populate_recordset(null::events, $1::json) on conflict do nothing`,
}

// Import implements [store.SlotMoves]. It writes only while slots of the move arrive, so a late copy of a move that was undone or has ended
// changes nothing.
func (c cell) Import(ctx context.Context, move string, what store.CellPart, text []byte) error {
	if string(text) == "[]" {
		return nil
	}
	err := c.db.tx(ctx, func(t *tx) error {
		var waits []int32
		t.queue(lockSlots)
		t.queue(slotsOf, move, store.SlotArriving).Query(rows(&waits, pgx.RowTo[int32]))
		if err := t.send(ctx); err != nil {
			return err
		}
		if len(waits) == 0 {
			return fmt.Errorf("no slots come here by move %s: %w", move, store.ErrConflict)
		}
		t.queue(imports[what], string(text))
		return t.commit(ctx)
	})
	if err != nil {
		return fmt.Errorf("import %s: %w", what, err)
	}
	return nil
}

// New positions come after a given one, with this cell's remainder.
const passSeq = `select case when l.n < $1::bigint then
	setval(pg_get_serial_sequence('runs', 'seq'), $1 - $1 % $2 + $2 + (select number from inbox_cell), false) end
	from (select coalesce(pg_sequence_last_value(pg_get_serial_sequence('runs', 'seq')::regclass), 0) as n) l`

// Open implements [store.SlotMoves]. Positions decide the order of a key. So what is accepted here from now on must come after all that the
// source has accepted.
func (c cell) Open(ctx context.Context, move string, after int64) error {
	err := c.db.tx(ctx, func(t *tx) error {
		slots, err := setOut(ctx, t, move, store.SlotArriving)
		if err != nil || len(slots) == 0 {
			return err
		}
		t.queue(passSeq, after, store.MaxCells)
		if err := reopen(ctx, t, move, store.SlotArriving, slots); err != nil {
			return err
		}
		return t.commit(ctx)
	})
	if err != nil {
		return fmt.Errorf("open slots: %w", err)
	}
	return nil
}

// dropRows bounds the rows that one Drop removes from each table.
const dropRows = 2000

const (
	// Another move may have brought a slot back meanwhile.
	goneSlots = "select n from unnest($1::int[]) n where not exists (select from inbox_slots where slot = n)"
	dropRuns  = `delete from runs where ctid = any (array (
		select ctid from runs where inbox_slot(key) = any ($1::int[]) and place = 'away' limit $2))`
	dropSomeKeys = `delete from keys where ctid = any (array (
		select ctid from keys where inbox_slot(key) = any ($1::int[]) limit $2))`
)

// Drop implements [store.SlotMoves]. It deletes only rows of slots that are not here. A slot that has come back has its rows for good.
func (c cell) Drop(ctx context.Context, move string, slots []int) (more bool, err error) {
	err = c.db.tx(ctx, func(t *tx) error {
		more = false
		var gone []int32
		t.queue(slotsPatience)
		t.queue(lockSlotsAlone)
		t.queue(leaveSlots, move, store.SlotFrozen)
		t.queue(goneSlots, slots).Query(rows(&gone, pgx.RowTo[int32]))
		if err := t.send(ctx); err != nil {
			return err
		}
		note := func(c pgconn.CommandTag) error { more = more || c.RowsAffected() == dropRows; return nil }
		t.queue(dropRuns, gone, dropRows).Exec(note)
		t.queue(dropSomeKeys, gone, dropRows).Exec(note)
		t.queue(dropOutbox, gone)
		return t.commit(ctx)
	})
	if err != nil {
		return false, fmt.Errorf("drop slots: %w", err)
	}
	return more, nil
}
