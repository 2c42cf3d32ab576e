package postgres

import (
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/model"
	"procaas/engine/sqlstore"
	"procaas/engine/store"
)

type place = model.Place

const (
	ready     = model.PlaceReady
	running   = model.PlaceRunning
	queued    = model.PlaceQueued
	scheduled = model.PlaceScheduled

	ended place = "ended" // of an intake only: its run goes to the history at once
)

// A keyName identifies an entity.
type keyName struct{ flow, key string }

// A keyEntry is a locked entity.
type keyEntry struct {
	store.EntityState
	busy    bool // a run is in flight
	listens bool // and waits for events
	pending bool // a due run has not ended, or blocks
	kept    store.Kept
	used    bool // by a stored event
	written bool // the entity must be saved
	moved   bool // with another state
}

// A keyring has the entities that a transaction has locked. An entity is locked before the transaction reads whether one of its runs is in
// flight, and stays locked until the commit. So no two transactions make two runs of one key ready.
type keyring struct {
	entries map[keyName]*keyEntry
	created []keyName
}

// of returns the entry of an event's entity. An event without order has an entry of its own.
func (k *keyring) of(r model.Intake) *keyEntry {
	if e := k.entries[keyName{r.Flow, r.Key}]; e != nil && r.Ordered {
		return e
	}
	return &keyEntry{}
}

// unused lists the entities that were created for refused events. They are deleted again, so that refused events leave nothing behind.
func (k *keyring) unused() (flows, keys []string) {
	for _, n := range k.created {
		if e := k.entries[n]; e != nil && !e.used {
			flows, keys = append(flows, n.flow), append(keys, n.key)
		}
	}
	return flows, keys
}

const (
	// Every transaction locks keys in this order, so there is no deadlock.
	inOrder  = `order by u.flow collate "C", u.key collate "C"`
	lockKeys = `select from unnest($1::text[], $2::text[]) as u (flow, key), keys k
	where k.flow = any (array[u.flow]) and k.key = any (array[u.key]) ` + inOrder + ` for no key update of k`
	// makeKeys locks the keys that exist, and returns those that it has made. An update whose condition is false still locks its row.
	makeKeys = insertKeys + `(select * from unnest($1::text[], $2::text[])) u (flow, key)` + lockOld
	// makeKeysOf also locks the keys of runs.
	makeKeysOf = insertKeys + `(select * from unnest($1::text[], $2::text[])
		union all select flow, key from runs where id = any ($3::text[]) and ordered) u (flow, key)` + lockOld
	insertKeys = `insert into keys (flow, key) select distinct on (u.flow collate "C", u.key collate "C") u.flow, u.key from `
	lockOld    = ` ` + inOrder + ` on conflict (flow, key) do update set state = keys.state where false returning flow, key`
	// A separate statement, so that it sees what was committed while makeKeys waited. It leaves out the keys that this transaction has
	// made: nobody else sees them, and they have no runs.
	readKeys = `select k.flow, k.key, k.state, k.shared,
	exists (select from runs r where r.flow = k.flow and r.key = k.key
		and ordered and place in ('ready', 'running', 'parked', 'held', 'blocked') offset 0) as busy,
	exists (select from runs r where r.flow = k.flow and r.key = k.key and ordered and place <> 'failed'
		and not (place = 'scheduled' and due > clock_timestamp()) offset 0) as pending,
	exists (select from runs r where r.flow = k.flow and r.key = k.key
		and ordered and place = 'parked' and awaits is not null offset 0) as listens
	from unnest($1::text[], $2::text[]) as u (flow, key), keys k where k.flow = any (array[u.flow]) and k.key = any (array[u.key])
	and k.xmin is distinct from pg_current_xact_id_if_assigned()::xid`
	deleteKeys = `delete from keys k using unnest($1::text[], $2::text[]) as u (flow, key)
	where k.flow = any (array[u.flow]) and k.key = any (array[u.key])`
)

// queueKeys makes, locks and reads the entities of events. After send, the keyring is filled.
func (t *tx) queueKeys(in []*intake) *keyring {
	k := &keyring{entries: map[keyName]*keyEntry{}}
	if flows, keys := k.add(in); len(keys) > 0 {
		t.queue(makeKeys, flows, keys).Query(k.make)
		t.queue(readKeys, flows, keys).Query(k.read)
	}
	return k
}

// add adds the entities of events, and returns their names.
func (k *keyring) add(in []*intake) (flows, keys []string) {
	for _, r := range in {
		if name := (keyName{r.Flow, r.Key}); r.Ordered && k.entries[name] == nil {
			k.entries[name] = &keyEntry{}
			flows, keys = append(flows, r.Flow), append(keys, r.Key)
		}
	}
	return flows, keys
}

// make takes the rows of makeKeys.
func (k *keyring) make(r pgx.Rows) error {
	return rows(&k.created, func(r pgx.CollectableRow) (n keyName, err error) { return n, r.Scan(&n.flow, &n.key) })(r)
}

const readKept = `select u.flow, u.key, k.n, k.bytes from unnest($1::text[], $2::text[]) as u (flow, key),
	lateral (select count(*) as n, coalesce(sum(octet_length(event)), 0)::bigint as bytes from runs r
		where r.flow = u.flow and r.key = u.key and place = 'scheduled' and error_class = 'kept') k`

// queueKept reads what the keys of events keep that may be kept, too.
func (t *tx) queueKept(k *keyring, in []*intake) {
	var flows, keys []string
	for _, r := range in {
		if r.Keep {
			flows, keys = append(flows, r.Flow), append(keys, r.Key)
		}
	}
	if len(keys) == 0 {
		return
	}
	t.queue(readKept, flows, keys).Query(func(rows pgx.Rows) error {
		var n keyName
		var kept store.Kept
		_, err := pgx.ForEachRow(rows, []any{&n.flow, &n.key, &kept.Events, &kept.Bytes}, func() error {
			k.entries[n].kept = kept
			return nil
		})
		return err
	})
}

// read takes the rows of readKeys.
func (k *keyring) read(rows pgx.Rows) error {
	var n keyName
	var e keyEntry
	_, err := pgx.ForEachRow(rows, []any{&n.flow, &n.key, &e.State, &e.Shared, &e.busy, &e.pending, &e.listens}, func() error {
		entry := e
		k.entries[n] = &entry
		e.Shared = nil // the next row must not overwrite it
		return nil
	})
	return err
}

const (
	// A run that is ready but has not begun gives way to an earlier one. It is searched among the
	// runs in flight, not in the index of all ready runs.
	demote = `update runs r set place = 'queued'
	from unnest($1::text[], $2::text[]) as k (flow, key), lateral (select a.seq from runs a
		where a.flow = k.flow and a.key = k.key and a.ordered and a.place in ('ready', 'running', 'parked', 'held', 'blocked')
		and a.place || '' = 'ready' and a.bundle = ''
		and exists (select from runs q where q.flow = k.flow and q.key = k.key and q.place = 'queued' and q.seq < a.seq offset 0)
		for no key update) a
	where r.seq = any (array[a.seq])`
)

// promote makes the first queued run of each key ready, if no other one is in flight.
var promote = readying(promoting("select distinct flow, key from unnest($1::text[], $2::text[]) as k (flow, key)"))

// firstQueued returns a query for the first queued run of a row's flow and key. It bounds the key on
// both sides. With equality the order would be that of seq alone, which the primary key has, too. A
// planner that has last seen few keys would use the primary key and scan all other runs. Bounds of
// whole rows do not end a scan of the index at the key.
func firstQueued(of string) string {
	return strings.ReplaceAll(`(select q.seq from runs q where q.flow = of.flow and q.key >= of.key and q.key <= of.key
		and q.place = 'queued' order by q.key, q.seq limit 1)`, "of.", of+".")
}

// promoting returns the statement of promote for the keys of a query, which returns each key once.
func promoting(keys string) string {
	return "update runs r set place = 'ready' from (" + keys + `) k
	where r.seq = any (array[` + firstQueued("k") + `])
	and not exists (select from runs a where a.flow = k.flow and a.key = k.key
		and a.ordered and a.place in ('ready', 'running', 'parked', 'held', 'blocked') offset 0)`
}

// readying makes a statement that changes runs r also return how many are ready then, and a
// position before all of them.
func readying(update string) string {
	return "with u as (" + update + " returning r.priority, r.deadline, r.place) " +
		"select count(*), min(- priority), min(deadline) from u where place = 'ready'"
}

// noteReady is the callback of such a statement.
func (t *tx) noteReady(row pgx.Row) error {
	_, err := t.countReady(row)
	return err
}

// countReady is noteReady, and also returns the number of runs.
func (t *tx) countReady(row pgx.Row) (n int, err error) {
	var rank *int64
	var at *time.Time
	if err := row.Scan(&n, &rank, &at); err != nil || n == 0 {
		return 0, err
	}
	t.readyAt(position{*rank, *at})
	return n, nil
}

// readyAt notes that runs become ready, none before a position.
func (t *tx) readyAt(p position) {
	if !t.ready {
		t.first = endOfQueue
	}
	t.ready, t.first = true, earlier(t.first, p)
}

// A keySet is a list of distinct entities.
type keySet struct {
	flows, keys []string
	has         map[keyName]bool
}

// add adds the entity of a run, if it has one.
func (k *keySet) add(ordered bool, flow, key string) {
	name := keyName{flow, key}
	if !ordered || k.has[name] {
		return
	}
	if k.has == nil {
		k.has = map[keyName]bool{}
	}
	k.has[name] = true
	k.flows, k.keys = append(k.flows, flow), append(k.keys, key)
}

// queueLock locks keys.
func (t *tx) queueLock(k *keySet) {
	if len(k.keys) > 0 {
		t.queue(lockKeys, k.flows, k.keys)
	}
}

// queuePromote makes the first queued run of each key ready, if no other one is in flight. The keys
// are locked.
func (t *tx) queuePromote(k *keySet) {
	if len(k.keys) > 0 {
		t.queue(promote, k.flows, k.keys).QueryRow(t.noteReady)
	}
}

// queueReorder is queuePromote after runs have come back that may be earlier than the ready one.
func (t *tx) queueReorder(k *keySet) {
	if len(k.keys) > 0 {
		t.queue(demote, k.flows, k.keys)
		t.queuePromote(k)
	}
}

// An ending is the last change of a run.
type ending struct {
	id     string
	status model.Status
	reason string
	last   *model.Change // the owner's last change; nil if no node owns the run
}

const moveRuns = `with e as (
		select * from unnest($1::text[], $2::text[], $3::text[], $4::bool[], $5::text[], $6::text[], $7::bytea[],
		$8::text[], $9::text[], $10::text[], $11::text[]) as
		e (id, status, reason, own, bundle, pipeline, checkpoint, failed_path, error, error_class, left_out)),
	gone as (
		delete from runs r using e where r.id = any (array[e.id])
		returning r.seq, r.accepted, r.started, r.version + e.own::int as version, r.generation, r.ordered,
		e.status, r.id, r.flow, r.key, case when own then e.pipeline else r.pipeline end as pipeline,
		case when own then e.bundle else r.bundle end as bundle,
		case when own then e.failed_path else r.failed_path end as failed_path,
		case when own then e.error else r.error end as error,
		case when own then e.error_class else r.error_class end as error_class,
		e.reason, r.event, case when own then e.checkpoint else r.checkpoint end as checkpoint, e.left_out, r.labels)
	insert into history (seq, accepted, started, version, generation, ordered, status, id, flow, key, pipeline,
		bundle, failed_path, error, error_class, reason, event, checkpoint, left_out, labels, ended)
	select gone.*, clock_timestamp() from gone`

// queueEnds moves locked runs to the history.
func (t *tx) queueEnds(ends []ending) {
	if len(ends) == 0 {
		return
	}
	var id, status, reason, bundle, pipeline, path, problem, class []string
	var own []bool
	var checkpoint [][]byte
	var left []*string
	for _, e := range ends {
		c := e.last
		if c == nil {
			c = &model.Change{}
		}
		id, status, reason = append(id, e.id), append(status, string(e.status)), append(reason, sqlstore.Text(e.reason))
		own, bundle, pipeline = append(own, e.last != nil), append(bundle, c.Bundle), append(pipeline, c.Pipeline)
		path, problem, class = append(path, c.FailedPath), append(problem, sqlstore.Text(c.Error)), append(class, c.ErrorClass)
		checkpoint, left = append(checkpoint, sqlstore.Blob(c.Checkpoint)), append(left, leftOut(c))
	}
	t.queue(moveRuns, id, status, reason, own, bundle, pipeline, checkpoint, path, problem, class, left)
}

// leftOut returns the stored form of what a change leaves out, or nil.
func leftOut(c *model.Change) *string {
	if len(c.LeftOut) == 0 {
		return nil
	}
	text := model.FormatLeftOut(c.LeftOut)
	return &text
}
