package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/sqlstore"
	"procaas/engine/store"
)

// oldest is the oldest version of PostgreSQL that a store works with, as the server numbers it.
const oldest = 130000

// skewed is how much the clocks of the server and of this machine may differ. Nodes go by the server's, and people read both.
const skewed = 2 * time.Second

// patience is how long a notification may take to come back.
const patience = 5 * time.Second

// An examination tries what a store needs of a server.
type examination struct {
	config *pgx.ConnConfig
	conn   *pgx.Conn
	pooled bool
	known  []sqlstore.History
	all    []store.Check
}

// Examine tries each feature of the server at dsn that a store needs, and looks for settings of its administrator that would
// hurt. It changes nothing: what it creates is rolled back. The error is about the address.
func Examine(ctx context.Context, dsn string, addons ...store.Tables) ([]store.Check, error) {
	known, err := histories(addons)
	if err != nil {
		return nil, err
	}
	x := &examination{known: known}
	config, pooled, err := prepareConfig(ctx, dsn)
	if err != nil {
		return nil, err
	}
	x.config, x.pooled = config.ConnConfig, pooled
	x.conn, err = pgx.ConnectConfig(ctx, x.config)
	if err != nil {
		return nil, err
	}
	defer func() { _ = x.conn.Close(context.WithoutCancel(ctx)) }()
	for _, look := range []func(context.Context) error{
		x.version, x.writable, x.durable, x.schema, x.tables, x.locks, x.features, x.notifications, x.connections, x.settings, x.login, x.clock, x.heldUp, x.growth,
		x.keys, x.size, x.slots,
	} {
		if err := look(ctx); err != nil {
			return x.all, err
		}
	}
	return x.all, nil
}

func (x *examination) note(name, level, remedy, found string, args ...any) {
	x.all = append(x.all, store.Check{Name: name, Level: level, Found: fmt.Sprintf(found, args...), Remedy: remedy})
}

// read reads one row. Nothing is prepared, because a pooler might not support it.
func (x *examination) read(ctx context.Context, sql string, args []any, into ...any) error {
	return x.conn.QueryRow(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...).Scan(into...)
}

func (x *examination) version(ctx context.Context) error {
	var number int
	var name, encoding string
	err := x.read(ctx, "select current_setting('server_version_num')::int, current_setting('server_version'), current_setting('server_encoding')",
		nil, &number, &name, &encoding)
	switch {
	case err != nil:
		return err
	case number < oldest:
		x.note("version", store.CheckRefused, "use PostgreSQL 13 or newer", "PostgreSQL %s", name)
	default:
		x.note("version", store.CheckFine, "", "PostgreSQL %s", name)
	}
	x.note("encoding", store.CheckFine, "", "%s", encoding) // another one is refused when connecting
	if x.pooled {
		x.note("pooler", store.CheckWarning, "give nodes an address of the server itself, or a pool in session mode",
			"a pooler in transaction mode: nodes poll once a second instead of being told of new runs")
	}
	return nil
}

func (x *examination) writable(ctx context.Context) error {
	var standby, readOnly bool
	err := x.read(ctx, "select pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'", nil, &standby, &readOnly)
	switch {
	case err != nil:
		return err
	case standby:
		x.note("writing", store.CheckRefused, "name all servers in the address, with target_session_attrs=read-write", "the server is a standby")
	case readOnly:
		x.note("writing", store.CheckRefused, "reset default_transaction_read_only for the role and the database", "transactions are read-only")
	default:
		x.note("writing", store.CheckFine, "", "the server is the primary")
	}
	return nil
}

func (x *examination) durable(ctx context.Context) error {
	var off []string
	var standbys string
	if err := x.read(ctx, findUnsafe, []any{durability}, &off); err != nil {
		return err
	}
	if err := x.read(ctx, "select current_setting('synchronous_standby_names')", nil, &standbys); err != nil {
		return err
	}
	switch {
	case len(off) > 0:
		x.note("durability", store.CheckRefused, "set it to on: the server may lose what it acknowledges", "%s is off", strings.Join(off, ", "))
	case standbys == "":
		x.note("durability", store.CheckFine, "", "commits are on the disk of this server; no standby is synchronous")
	default:
		x.note("durability", store.CheckFine, "", "commits are on this server and on synchronous standbys: %s", standbys)
	}
	return nil
}

func (x *examination) schema(ctx context.Context) error {
	var schema *string
	var may bool
	err := x.read(ctx, "select current_schema(), coalesce(has_schema_privilege(current_schema(), 'create'), false)", nil, &schema, &may)
	if err != nil {
		return err
	}
	var elsewhere, first string
	err = x.read(ctx, storeElsewhere, nil, &elsewhere, &first)
	misplaced := misplaced(err, pgx.ErrNoRows, elsewhere, first)
	switch {
	case schema == nil:
		x.note("schema", store.CheckRefused, "create a schema that is on the search_path of the role", "no schema of the search_path exists")
	case misplaced != nil:
		x.note("schema", store.CheckRefused, "see what was found", "%s", misplaced)
	case !may:
		x.note("schema", store.CheckRefused, fmt.Sprintf("grant create on schema %s to the role", *schema),
			"the role may not create tables in the schema %s", *schema)
	default:
		x.note("schema", store.CheckFine, "", "%s", *schema)
	}
	return nil
}

// tables looks at the tables of a store that is there already.
func (x *examination) tables(ctx context.Context) error {
	have, err := versions(ctx, x.known, x.conn)
	if err != nil {
		return err
	}
	var foreign []string
	const others = `select coalesce(array_agg(c.relname::text order by 1), '{}') from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = current_schema() and c.relkind in ('r', 'p') and not pg_has_role(c.relowner, 'usage')
			and to_regclass('` + schemaTable + `') is not null`
	if err := x.read(ctx, others, nil, &foreign); err != nil {
		return err
	}
	x.all = append(x.all, sqlstore.Examine(x.known, have))
	if len(foreign) > 0 {
		x.note("owner", store.CheckRefused, "alter table … owner to the role of the nodes, which migrate them",
			"the role does not own %d tables, such as %s", len(foreign), foreign[0])
	}
	return nil
}

// locks tries whether an advisory lock keeps another connection out. Some servers that are not PostgreSQL have functions that lock
// nothing.
func (x *examination) locks(ctx context.Context) error {
	const (
		name   = "advisory locks"
		remedy = "use a server whose pg_advisory_xact_lock locks"
		try    = "select pg_try_advisory_xact_lock(hashtext('procaas check'))"
	)
	other, err := pgx.ConnectConfig(ctx, x.config)
	if err != nil {
		return err
	}
	defer func() { _ = other.Close(context.WithoutCancel(ctx)) }()
	tx, err := x.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var mine, theirs bool
	failed := x.read(ctx, try, nil, &mine)
	if failed == nil {
		failed = other.QueryRow(ctx, try, pgx.QueryExecModeExec).Scan(&theirs)
	}
	refused, ok := errors.AsType[*pgconn.PgError](failed)
	switch {
	case ok:
		x.note(name, store.CheckRefused, remedy, "%s", refused.Message)
	case failed != nil:
		return failed
	case mine && theirs:
		x.note(name, store.CheckRefused, remedy, "two connections got the same lock at once")
	default: // somebody else may check at this moment
		x.note(name, store.CheckFine, "", "tried: one connection keeps another out")
	}
	return nil
}

// probe makes a table like those of a store. It is rolled back.
const probe = "create table procaas_check (day date, id int, body jsonb, primary key (day, id)) partition by range (day);" +
	"create table procaas_check_1 partition of procaas_check for values from ('2000-01-01') to ('2000-01-02');"

// features tries what statements of the store use.
func (x *examination) features(ctx context.Context) error {
	for _, f := range []struct{ name, sql, remedy string }{
		{"partitions", probe + "create index on procaas_check (id) where id > 0", "let the role create tables and indexes in the schema"},
		{"skip locked", probe + "insert into procaas_check values ('2000-01-01', 1, '{}') on conflict do nothing;" +
			"select id from procaas_check for update skip locked", "use a server that has for update skip locked"},
	} {
		tx, err := x.conn.Begin(ctx)
		if err != nil {
			return err
		}
		_, failed := x.conn.PgConn().Exec(ctx, f.sql).ReadAll()
		if err := tx.Rollback(ctx); err != nil {
			return err
		}
		refused, ok := errors.AsType[*pgconn.PgError](failed)
		switch {
		case failed == nil:
			x.note(f.name, store.CheckFine, "", "tried, and rolled back")
		case ok:
			x.note(f.name, store.CheckRefused, f.remedy, "%s", refused.Message)
		default:
			return failed
		}
	}
	return nil
}

// notifications tries whether a session hears of what it tells.
func (x *examination) notifications(ctx context.Context) error {
	if x.pooled {
		return nil // the pooler is told of already
	}
	const slow = "nodes poll once a second, so runs of other nodes begin later"
	if _, err := x.conn.Exec(ctx, "listen procaas_check"); err != nil {
		x.note("notifications", store.CheckWarning, slow, "listen is refused: %s", err)
		return nil
	}
	if _, err := x.conn.Exec(ctx, "select pg_notify('procaas_check', '')"); err != nil {
		x.note("notifications", store.CheckWarning, slow, "notify is refused: %s", err)
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := x.conn.WaitForNotification(waiting); err != nil {
		x.note("notifications", store.CheckWarning, slow, "a notification did not come back: %s", err)
		return nil
	}
	x.note("notifications", store.CheckFine, "", "a notification came back")
	_, err := x.conn.Exec(ctx, "unlisten procaas_check")
	return err
}

// connections counts those that nodes may open.
func (x *examination) connections(ctx context.Context) error {
	var most, used int
	const limits = `select least(nullif(r.rolconnlimit, -1), nullif(d.datconnlimit, -1),
			current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int),
			(select count(*) from pg_stat_activity where backend_type = 'client backend')
		from pg_roles r, pg_database d where r.rolname = current_user and d.datname = current_database()`
	if err := x.read(ctx, limits, nil, &most, &used); err != nil {
		return err
	}
	const each = maxConns + 1 // one listens
	left := most - used
	level, remedy := store.CheckFine, ""
	if left < each && !x.pooled {
		level = store.CheckWarning
		remedy = "raise max_connections or the limit of the role, or give the address pool_max_conns"
	}
	x.note("connections", level, remedy, "%d of %d are free for this role; a node opens up to %d, and add-ons more", max(left, 0), most, each)
	return nil
}

// settings looks for what administrators set and nodes do not override.
func (x *examination) settings(ctx context.Context) error {
	const is = store.CheckWarning
	for _, s := range []struct{ name, bad, found, remedy string }{
		{"idle_session_timeout", "v not in ('0', '')", "idle connections are ended after %s", "alter role … set idle_session_timeout = 0"},
		{"default_transaction_isolation", "v <> 'read committed'", "transactions are %s", "alter role … set default_transaction_isolation = 'read committed'"},
		{"log_statement", "v in ('mod', 'all')", "the server logs statements (%s), with payloads of events", "alter role … set log_statement = 'none' or 'ddl'"},
		{"log_min_duration_statement", "v = '0'", "the server logs each statement (%s ms and longer), with payloads of events",
			"alter role … set log_min_duration_statement to some 100 ms"},
		{"autovacuum", "v = 'off'", "autovacuum is %s: tables of runs grow without bound", "set autovacuum = on"},
		{"track_counts", "v = 'off'", "track_counts is %s: autovacuum does not work", "set track_counts = on"},
		{"standard_conforming_strings", "v = 'off'", "standard_conforming_strings is %s", "alter role … set standard_conforming_strings = on"},
	} {
		var value string
		var bad bool
		sql := "select coalesce(v, ''), " + s.bad + " from (select coalesce(current_setting($1, true), '') v) s"
		if err := x.read(ctx, sql, []any{s.name}, &value, &bad); err != nil {
			return err
		}
		if bad {
			x.note(s.name, is, s.remedy, s.found, value)
		}
	}
	return nil
}

// login looks at the role.
func (x *examination) login(ctx context.Context) error {
	var name string
	var super bool
	var until *time.Time
	err := x.read(ctx, `select rolname::text, rolsuper, case when isfinite(rolvaliduntil) then rolvaliduntil end
		from pg_roles where rolname = current_user`, nil, &name, &super, &until)
	const month = 30 * 24 * time.Hour
	switch {
	case err != nil:
		return err
	case until != nil && time.Until(*until) < month:
		x.note("role", store.CheckWarning, "give it a new password and valid until; nodes read ~/.pgpass at each new connection",
			"the password of %s ends at %s", name, until.UTC().Format(time.RFC3339))
	case super:
		x.note("role", store.CheckWarning, "create a role without superuser that owns the database", "%s is a superuser, and nodes need no such rights", name)
	default:
		x.note("role", store.CheckFine, "", "%s", name)
	}
	return nil
}

func (x *examination) clock(ctx context.Context) error {
	before := time.Now()
	var server time.Time
	if err := x.read(ctx, "select clock_timestamp()", nil, &server); err != nil {
		return err
	}
	took := time.Since(before)
	off := server.Sub(before.Add(took / 2)).Round(time.Millisecond)
	level, remedy := store.CheckFine, ""
	if off.Abs() > skewed+took {
		level, remedy = store.CheckWarning, "synchronize both with NTP: nodes go by the clock of the server"
	}
	x.note("clock", level, remedy, "the server is %s from this machine; a question takes %s", off, took.Round(10*time.Microsecond))
	return nil
}

// heldUp looks for a session that others have waited for.
func (x *examination) heldUp(ctx context.Context) error {
	const find = `select b.pid, coalesce(nullif(b.application_name, ''), b.usename::text, ''), coalesce(b.state, 'unknown'),
			coalesce(extract(epoch from clock_timestamp() - b.xact_start), 0)::bigint, count(distinct w.pid)
		from pg_stat_activity w cross join lateral unnest(pg_blocking_pids(w.pid)) p(pid) join pg_stat_activity b on b.pid = p.pid
		where w.datname = current_database() and w.wait_event_type = 'Lock' and w.query_start < clock_timestamp() - interval '1 second'
		group by 1, 2, 3, 4 order by 5 desc, 4 desc limit 1`
	var pid, seconds, waiting int64
	var who, state string
	err := x.read(ctx, find, nil, &pid, &who, &state, &seconds, &waiting)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		x.note("waiting", store.CheckFine, "", "no session has waited for a lock for a second")
	case err != nil:
		return err
	default:
		x.note("waiting", store.CheckWarning, fmt.Sprintf("find out what it does, or end it: select pg_terminate_backend(%d)", pid),
			"%d sessions wait for a lock of process %d (%s), which is %s in a transaction of %d s", waiting, pid, who, state, seconds)
	}
	return nil
}

// growth looks for tables that are mostly dead rows.
func (x *examination) growth(ctx context.Context) error {
	const find = `select relname::text, n_dead_tup, n_live_tup from pg_stat_user_tables
		where schemaname = current_schema() and n_dead_tup > 100000 and n_dead_tup > n_live_tup order by n_dead_tup desc limit 1`
	var table string
	var dead, live int64
	err := x.read(ctx, find, nil, &table, &dead, &live)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		x.note("growth", store.CheckFine, "", "no table is mostly dead rows")
	case err != nil:
		return err
	default:
		x.note("growth", store.CheckWarning, fmt.Sprintf("vacuum %s; look for old transactions, replication slots that nobody reads, and autovacuum", table),
			"the table %s has %d dead rows, and %d live ones", table, dead, live)
	}
	return nil
}

// keys looks at the keys of an encrypted store.
func (x *examination) keys(ctx context.Context) error {
	var document []byte
	if has, err := x.has(ctx, "documents"); err != nil || !has {
		return err
	}
	if err := x.read(ctx, sqlstore.FindKeys, nil, &document); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	x.all = append(x.all, sqlstore.ExamineKeys(document))
	return nil
}

func (x *examination) has(ctx context.Context, table string) (has bool, err error) {
	err = x.read(ctx, "select to_regclass($1) is not null", []any{table}, &has)
	return has, err
}

// size says how large the store is, and how much nodes store in a day. The rest of the disk is out of sight.
func (x *examination) size(ctx context.Context) error {
	if has, err := x.has(ctx, "usage_days"); err != nil || !has {
		return err
	}
	const find = `select (select pg_database_size(current_database())),
			coalesce((select string_agg(format('%s %s', name, pg_size_pretty(bytes)), ', ' order by bytes desc) from (
				select coalesce(p.inhparent, c.oid)::regclass::text as name, sum(pg_total_relation_size(c.oid))::bigint as bytes
				from pg_class c left join pg_inherits p on p.inhrelid = c.oid
				where c.relkind = 'r' and c.relnamespace = current_schema()::regnamespace group by 1 order by 2 desc limit 3) largest), ''),
			coalesce((select sum(stored_bytes) / 7 from usage_days where day >= to_char(now() at time zone 'UTC' - interval '7 days', 'YYYY-MM-DD')
				and day < to_char(now() at time zone 'UTC', 'YYYY-MM-DD')), 0)::bigint`
	var database, daily int64
	var largest string
	if err := x.read(ctx, find, nil, &database, &largest, &daily); err != nil {
		return err
	}
	x.note("size", store.CheckFine, "", "the database has %d MiB, of which %s; in the last week, runs stored %d MiB a day; what the disk has left, only its "+
		"machine knows", database>>20, largest, daily>>20)
	return nil
}

// muchLog is how much of its log a server may keep for a replication slot, in bytes.
const muchLog = 1 << 30

// slots looks for replication slots for which the server keeps its log. They fill disks.
func (x *examination) slots(ctx context.Context) error {
	const find = `select slot_name::text, active, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint from pg_replication_slots
		where not pg_is_in_recovery() and restart_lsn is not null order by 3 desc limit 1`
	var slot string
	var active bool
	var behind int64
	err := x.read(ctx, find, nil, &slot, &active, &behind)
	refused, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case ok:
		x.note("log", store.CheckFine, "", "how much log the server keeps for replication slots is not known: %s", refused.Message)
	case err != nil:
		return err
	case behind > muchLog && active:
		x.note("log", store.CheckWarning, "find out why its reader is slow: the log fills the disk", "the server keeps %d MiB of its log for the slot %s", behind>>20, slot)
	case behind > muchLog:
		x.note("log", store.CheckWarning, fmt.Sprintf("start its reader, or give it up: select pg_drop_replication_slot('%s')", slot),
			"the server keeps %d MiB of its log for the slot %s, which nobody reads", behind>>20, slot)
	default:
		x.note("log", store.CheckFine, "", "the server keeps %d MiB of its log for replication slots at most", behind>>20)
	}
	return nil
}
