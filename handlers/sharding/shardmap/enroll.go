package shardmap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"procaas/dsl/tree"
	"procaas/handlers/sharding/transfer"
)

// An enroller prepares shards for a map.
type enroller struct{ *Map }

// An Enrollment says what was found and done on a shard.
type Enrollment struct {
	Map, Shard   string
	Reasons      []string // why the shard cannot be enrolled; then nothing was changed
	Warnings     []string
	Publications []string
	Fences       int // number of created fences
}

// oldestServer is the first version with row filters in publications.
const oldestServer = 150000

// Enroll installs the fences and publications on the master of a shard. It may be repeated, and
// must be after a change of the map's tables. If the shard does not meet the conditions, nothing is
// installed.
func (s *Service) Enroll(ctx context.Context, m *Map, shard string) (Enrollment, error) {
	return s.enroll(ctx, m, shard, func(any) error { return nil })
}

// enroll calls audit before it changes the shard, which is in another database than the audit, and
// again with the result. If the first call fails, nothing is changed.
func (s *Service) enroll(ctx context.Context, m *Map, shard string, audit func(after any) error) (Enrollment, error) {
	e := Enrollment{Map: m.ID, Shard: shard}
	pool, err := s.Connect(ctx, m, shard)
	if err != nil {
		return e, err
	}
	if err := (enroller{m}).inspect(ctx, pool, &e); err != nil || len(e.Reasons) > 0 {
		return e, enroller{m}.enrollError(shard, err)
	}
	if err := audit(map[string]any{"enrolling": true}); err != nil {
		return e, enroller{m}.enrollError(shard, err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := installFence(ctx, tx); err != nil {
			return err
		}
		return enroller{m}.publish(ctx, tx, &e)
	})
	if err == nil {
		err = enroller{m}.fenceAll(ctx, pool, shard, &e)
	}
	outcome := map[string]any{"enrolled": true, "fences": e.Fences}
	if err != nil {
		outcome = map[string]any{"enrolled": false, "error": err.Error()}
	}
	return e, enroller{m}.enrollError(shard, errors.Join(err, audit(outcome)))
}

func (m enroller) enrollError(shard string, err error) error {
	if err != nil {
		return fmt.Errorf("map %s: enroll %s: %w", m.ID, shard, err)
	}
	return nil
}

const serverFacts = `select current_setting('server_version_num')::int, current_setting('wal_level'),
	current_setting('max_replication_slots')::int, current_setting('max_wal_senders')::int,
	current_setting('max_prepared_transactions')::int,
	(select count(*) from pg_prepared_xacts where prepared < now() - interval '1 minute'),
	(select rolsuper or rolreplication from pg_roles where rolname = current_user)`

// leastSlots is how many replication slots transfers need at least: one in each direction, for two
// transfers.
const leastSlots = 4

// inspect finds out why a shard cannot be enrolled.
func (m enroller) inspect(ctx context.Context, q Querier, e *Enrollment) error {
	var version, slots, senders, prepared, dangling int
	var wal string
	var replicates bool
	err := q.QueryRow(ctx, serverFacts).Scan(&version, &wal, &slots, &senders, &prepared, &dangling, &replicates)
	if err != nil {
		return err
	}
	// All reasons at once, so that an operator restarts a server only once.
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			e.Reasons = append(e.Reasons, fmt.Sprintf(format, args...))
		}
	}
	refuse(version < oldestServer, "the server has version %d, want 15 or later: publications have no row filters before", version/10000)
	refuse(wal != "logical", "wal_level is %s, want logical: alter system set wal_level = logical, then restart the server", wal)
	refuse(slots < leastSlots, "max_replication_slots is %d, want %d at least", slots, leastSlots)
	refuse(senders < leastSlots, "max_wal_senders is %d, want %d at least", senders, leastSlots)
	refuse(!replicates, "the role of procaas has no right to replicate: alter role … replication")
	r := m.Declared.Registration
	refuse(r != nil && r.TwoPhase && prepared == 0, "max_prepared_transactions is 0, but the map registers in two phases")
	if dangling > 0 {
		e.Warnings = append(e.Warnings, fmt.Sprintf("%d prepared transactions are older than a minute; they hold up transfers", dangling))
	}
	for _, t := range m.Declared.Tables {
		if err := m.inspectTable(ctx, q, t, e); err != nil {
			return err
		}
	}
	return nil
}

// The columns that identify rows in the stream: those of the replica identity.
const (
	tableFacts = `select c.oid::bigint, c.relkind::text, c.relreplident::text,
		exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary),
		array(select i.inhrelid::regclass::text from pg_inherits i where i.inhparent = c.oid order by 1 limit 4), c.relpersistence <> 'p'
		from pg_class c where c.oid = to_regclass($1)`
	columnTypes = `select attname::text, format_type(atttypid, null) from pg_attribute
	where attrelid = $1::bigint::oid and attnum > 0 and not attisdropped`
	primaryKey = `select a.attname::text from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey)
		where i.indrelid = $1::bigint::oid and i.indisprimary`
)

func (m enroller) inspectTable(ctx context.Context, q Querier, t *tree.ShardTable, e *Enrollment) error {
	refuse := func(format string, args ...any) {
		e.Reasons = append(e.Reasons, "table "+t.Table+": "+fmt.Sprintf(format, args...))
	}
	var oid int64
	var kind, identity string
	var hasKey, unlogged bool
	var children []string
	err := q.QueryRow(ctx, tableFacts, quoteTable(t.Table)).Scan(&oid, &kind, &identity, &hasKey, &children, &unlogged)
	if errors.Is(err, pgx.ErrNoRows) {
		refuse("there is none")
		return nil
	}
	if err != nil {
		return err
	}
	odd := transfer.Oddity(kind, children)
	switch {
	case odd != "":
		refuse("it %s", odd)
	case unlogged:
		refuse("it is unlogged, so its changes are not in the log that the stream reads: alter table … set logged")
	case !hasKey:
		refuse("it has no primary key, so its rows cannot be told apart in the stream: alter table … add primary key")
	case identity != "d" && identity != "f":
		refuse("its replica identity is neither its primary key nor full: alter table … replica identity default")
	}
	types, unique, err := columnsOf(ctx, q, oid)
	if err == nil {
		m.inspectColumns(types, unique, t, e, refuse)
	}
	return err
}

// columnsOf reads the types of the columns of a table, and the columns of its primary key.
func columnsOf(ctx context.Context, q Querier, oid int64) (types map[string]string, unique []string, err error) {
	types = map[string]string{}
	rows, err := q.Query(ctx, columnTypes, oid)
	if err != nil {
		return nil, nil, err
	}
	var name, kind string
	if _, err := pgx.ForEachRow(rows, []any{&name, &kind}, func() error { types[name] = kind; return nil }); err != nil {
		return nil, nil, err
	}
	rows, err = q.Query(ctx, primaryKey, oid)
	if err != nil {
		return nil, nil, err
	}
	unique, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return types, unique, err
}

// inspectColumns checks that the primary key contains the columns of the key. If a publication
// filtered by another column, the server would refuse updates of the table.
func (m enroller) inspectColumns(types map[string]string, unique []string, t *tree.ShardTable, e *Enrollment, refuse func(string, ...any)) {
	allowed := []string{"text", "character varying"}
	if m.layout.ints {
		allowed = []string{"bigint", "integer", "smallint"}
	}
	for i, column := range (rowFinder{m.Map}).columns(t) {
		switch kind, known := types[column]; {
		case !known:
			refuse("it has no column %s, which holds a part of the key", column)
		case !slices.Contains(unique, column):
			refuse("the column %s, which holds a part of the key, is not in its primary key", column)
		case i == 0 && !slices.Contains(allowed, kind):
			refuse("the column %s is %s, want %s for a key of this type", column, kind, strings.Join(allowed, " or "))
		case !transfer.Publishable(kind):
			e.Warnings = append(e.Warnings, fmt.Sprintf("table %s: publications do not filter by the column %s, which is %s: a key with a part "+
				"there moves "+
				"by lock-copy-switch, and its writers wait for the copy", t.Table, column, kind))
		}
	}
}

const knownPublications = `select pubname::text from pg_publication where pubname = any($1)`

// publish creates the publications, or sets the tables of existing ones.
func (m enroller) publish(ctx context.Context, tx pgx.Tx, e *Enrollment) error {
	n := m.layout.publications()
	var names []string
	for bucket := range n {
		names = append(names, rowFinder{m.Map}.publication(bucket))
	}
	rows, err := tx.Query(ctx, knownPublications, names)
	if err != nil {
		return err
	}
	known, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for bucket, name := range names {
		tables := []string{"procaas.fences"}
		for _, t := range m.Declared.Tables {
			filter := ""
			if n > 1 {
				filter = fmt.Sprintf(" where ((%s & %d) = %d)", m.layout.hashSQL(rowFinder{m.Map}.columns(t)[0]), n-1, bucket)
			}
			tables = append(tables, quoteTable(t.Table)+filter)
		}
		list := strings.Join(tables, ", ")
		// Set, not add, so that a table that the map no longer names leaves it.
		sql := fmt.Sprintf("alter publication %s set table %s", quoteName(name), list)
		if !slices.Contains(known, name) {
			sql = fmt.Sprintf("create publication %s for table %s with (publish = 'insert, update, delete')", quoteName(name), list)
		}
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("publication %s: %w", name, err)
		}
	}
	e.Publications = names
	return nil
}

const putFences = `insert into procaas.fences (map, key, epoch, state) select $1, k, e, 'active'
	from unnest($2::text[], $3::bigint[]) u(k, e)
	on conflict do nothing`

// fenceAll creates the missing fences for what the map has on a shard.
func (m enroller) fenceAll(ctx context.Context, q Querier, shard string, e *Enrollment) error {
	for after := ""; ; {
		page, err := feeder{m.Map}.page(ctx, placedHere, shard, after)
		if err != nil || len(page) == 0 {
			return err
		}
		keys, epochs := make([]string, len(page)), make([]int64, len(page))
		for i, p := range page {
			keys[i], epochs[i] = p.Key, p.Epoch
		}
		tag, err := q.Exec(ctx, putFences, m.ID, keys, epochs)
		if err != nil {
			return err
		}
		e.Fences += int(tag.RowsAffected())
		after = keys[len(keys)-1]
	}
}
