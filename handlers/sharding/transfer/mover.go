package transfer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// A Mover does the steps of one transfer. It is not safe for concurrent use.
type Mover struct {
	spec   Spec
	limits Limits

	// next is the epoch that the key will have, and owner the token of this
	// coordinator: an older one changes nothing any more.
	next  int64
	owner string

	back   bool // the way back: source and target are swapped, and so are the slots
	source *pgx.Conn
	target *pgx.Conn // applies, and holds the lock of the transfer
	tables []*shape  // as the source has them
	apply  *applier

	prepared map[string]string // statements of the target's connection

	reported time.Time
}

// A Claim is what the map gives to the coordinator of a transfer.
type Claim struct {
	Owner string // token; a later claim of the same transfer has another one
	Epoch int64  // of the key now
	Next  int64  // that it will have; higher than any that was given before
}

// ErrBusy says that another process works on the transfer.
var ErrBusy = errors.New("another process works on this transfer")

// settings make both sides write values alike, and end what a lost process has left.
var settings = map[string]string{
	"application_name": "procaas transfer", "datestyle": "ISO, MDY", "timezone": "UTC", "intervalstyle": "postgres",
	"extra_float_digits": "1", "bytea_output": "hex", "lc_monetary": "C", "client_encoding": "UTF8",
	"idle_in_transaction_session_timeout": "60000", "tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
	"row_security": "off", // what a policy would hide is an error instead
	"search_path":  "pg_catalog", "standard_conforming_strings": "on", "synchronous_commit": "on",
	"default_transaction_isolation": "read committed",
}

// Open connects to both shards and takes the transfer's lock. Close ends it.
func Open(ctx context.Context, spec Spec, claim Claim) (*Mover, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	return open(ctx, spec, claim, false)
}

// OpenBack is as [Open], for the way back over the stream that Cutover has prepared:
// the spec is that of the transfer that is undone.
func OpenBack(ctx context.Context, spec Spec, claim Claim) (*Mover, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	spec.Source, spec.Target = spec.Target, spec.Source
	spec.SourceShard, spec.TargetShard = spec.TargetShard, spec.SourceShard
	return open(ctx, spec, claim, true)
}

func open(ctx context.Context, spec Spec, claim Claim, back bool) (*Mover, error) {
	spec.Epoch = claim.Epoch
	m := &Mover{spec: spec, limits: spec.Limits.filled(), next: claim.Next, owner: claim.Owner, back: back}
	var err error
	if m.source, err = connect(ctx, spec.Source, spec.SourceShard); err == nil {
		m.target, err = connect(ctx, spec.Target, spec.TargetShard)
	}
	if err == nil {
		err = m.lock(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func connect(ctx context.Context, dsn, shard string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("shard %s: its connection string is not understood", shard)
	}
	maps.Copy(config.RuntimeParams, settings)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("shard %s: %w", shard, err)
	}
	return c, nil
}

// lock keeps other processes from working on the transfer while this one has its
// connections: on both sides, since it writes to both.
func (m *Mover) lock(ctx context.Context) error {
	m.prepared = map[string]string{}
	for _, c := range []*pgx.Conn{m.source, m.target} {
		var got bool
		if err := c.QueryRow(ctx, "select pg_try_advisory_lock(hashtextextended($1, 81))", "procaas.transfer "+
			m.spec.ID).Scan(&got); err != nil {
			return err
		}
		if !got {
			return ErrBusy
		}
		if err := Install(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the connections. What the steps have reached stays.
func (m *Mover) Close() error {
	if m.apply != nil {
		m.apply.stream.close()
		m.apply = nil
	}
	// Not of the caller, whose time may be over: what is not given back here, the servers end when they notice.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var err error
	for _, c := range []*pgx.Conn{m.source, m.target} {
		if c == nil {
			continue
		}
		if !c.IsClosed() { // the server ends the session, and with it the lock, some time later
			_, _ = c.Exec(ctx, "select pg_advisory_unlock_all()")
		}
		err = errors.Join(err, c.Close(ctx))
	}
	return err
}

func (m *Mover) at(point string) error {
	if m.spec.Hook == nil {
		return nil
	}
	if err := m.spec.Hook(point); err != nil {
		return &crashError{err}
	}
	return nil
}

// report tells about the progress, not too often.
func (m *Mover) report(p Progress, always bool) {
	if m.spec.Report == nil || !always && time.Since(m.reported) < 250*time.Millisecond {
		return
	}
	m.reported = time.Now()
	if p.Total > 0 {
		p.Percent = min(100, 100*float64(p.Rows)/float64(p.Total))
	}
	m.spec.Report(p)
}

// slot names the slot and publication that this direction reads.
func (m *Mover) slot() string {
	if m.back {
		return m.spec.backSlot()
	}
	return m.spec.slot()
}

// direction names the position and the echo of this direction.
func (m *Mover) direction() string {
	if m.back {
		return m.spec.ID + "/back"
	}
	return m.spec.ID
}

// against names the echo of the other direction.
func (m *Mover) against() string {
	if m.back {
		return m.spec.ID
	}
	return m.spec.ID + "/back"
}

// misfits tells what keeps the tables from being moved, with what more says of those of
// the source.
func (m *Mover) misfits(ctx context.Context, more func(*shape) []string) (reasons []string, err error) {
	for _, t := range m.spec.Tables {
		source, err := readShape(ctx, m.source, t)
		if err != nil {
			return nil, err
		}
		target, err := readShape(ctx, m.target, t)
		if err != nil {
			return nil, err
		}
		switch {
		case source == nil:
			reasons = append(reasons, fmt.Sprintf("shard %s has no table %s", m.spec.SourceShard, t.Name))
		case target == nil:
			reasons = append(reasons, fmt.Sprintf("shard %s has no table %s", m.spec.TargetShard, t.Name))
		case source.odd != "" || target.odd != "":
			for i, s := range []*shape{source, target} {
				if s.odd != "" {
					shard := []string{m.spec.SourceShard, m.spec.TargetShard}[i]
					reasons = append(reasons, fmt.Sprintf("table %s of shard %s %s", s.title(), shard, s.odd))
				}
			}
		default:
			reasons = append(append(reasons, more(source)...), source.differences(target)...)
		}
	}
	return reasons, nil
}

// Plan refuses what could not be moved, with all reasons. It changes nothing.
func (m *Mover) Plan(ctx context.Context) error {
	reasons, err := m.misfits(ctx, (*shape).refusals)
	if err != nil {
		return err
	}
	more, err := m.serverRefusals(ctx)
	if err != nil {
		return err
	}
	if reasons = append(reasons, more...); len(reasons) > 0 {
		return &RefusedError{reasons}
	}
	if err := m.crowded(ctx); err != nil {
		return err
	}
	if err := m.load(ctx); err != nil {
		return err
	}
	return m.tryPublish(ctx)
}

// fenceThere tells whether a shard has the fence that transfers need.
const fenceThere = "select to_regprocedure('procaas.overdue()') is not null"

// enrolled gives the reasons why the fences cannot be used.
func (m *Mover) enrolled(ctx context.Context) ([]string, error) {
	var out []string
	for i, c := range []*pgx.Conn{m.source, m.target} {
		shard := []string{m.spec.SourceShard, m.spec.TargetShard}[i]
		var there bool
		if err := c.QueryRow(ctx, fenceThere).Scan(&there); err != nil {
			return nil, fmt.Errorf("shard %s: %w", shard, err)
		}
		if !there {
			out = append(out, fmt.Sprintf("shard %s has no fence, or an old one: enroll it", shard))
		}
	}
	return out, nil
}

const readServer = `select current_setting('server_version_num')::int / 10000, current_setting('wal_level'),
	current_setting('max_replication_slots')::int, current_setting('max_wal_senders')::int, current_setting('server_encoding'),
	(select count(*) from pg_prepared_xacts where prepared < now() - interval '1 minute')::int,
	(select rolreplication or rolsuper from pg_roles where rolname = current_user), pg_is_in_recovery()`

func (m *Mover) serverRefusals(ctx context.Context) ([]string, error) {
	out, err := m.enrolled(ctx)
	if err != nil {
		return nil, err
	}
	var encodings []string
	for i, c := range []*pgx.Conn{m.source, m.target} {
		shard := []string{m.spec.SourceShard, m.spec.TargetShard}[i]
		var version, slots, senders, prepared int
		var level, encoding string
		var replicates, recovers bool
		if err := c.QueryRow(ctx, readServer).Scan(&version, &level, &slots, &senders, &encoding, &prepared, &replicates,
			&recovers); err != nil {
			return nil, fmt.Errorf("shard %s: %w", shard, err)
		}
		encodings = append(encodings, encoding)
		refuse := func(bad bool, format string, args ...any) {
			if bad {
				out = append(out, "shard "+shard+" "+fmt.Sprintf(format, args...))
			}
		}
		refuse(recovers, "is reached at a replica, not at its master")
		refuse(version < 15, "runs PostgreSQL %d, whose publications do not filter rows: want 15 or newer", version)
		refuse(level != "logical", "has wal_level = %s: set it to logical and restart, or use the method lock-copy-switch", level)
		refuse(slots < needsSlots, "has max_replication_slots = %d: want %d or more", slots, needsSlots)
		refuse(senders < needsSlots, "has max_wal_senders = %d: want %d or more", senders, needsSlots)
		refuse(!replicates, "lets its user not replicate: alter role … replication")
		// Dangling ones only: a younger one may end while the slot waits for it.
		refuse(prepared > 0, "has %d prepared transactions older than a minute, for which a slot would wait: commit them or roll them back",
			prepared)
	}
	if encodings[0] != encodings[1] {
		out = append(out, fmt.Sprintf("the encodings differ: %s in the source and %s in the target", encodings[0], encodings[1]))
	}
	return out, nil
}

// A transfer reads a slot, and another one for a moment when it compares rows.
const (
	needsSlots = 2
	readUse    = `select (select count(*) from pg_replication_slots)::int, current_setting('max_replication_slots')::int,
	(select count(*) from pg_stat_replication)::int, current_setting('max_wal_senders')::int`
)

// crowded tells which shard has no room for a transfer at present. That is no refusal: others end, and
// those that are observed give theirs back.
func (m *Mover) crowded(ctx context.Context) error {
	for i, c := range []*pgx.Conn{m.source, m.target} {
		shard := []string{m.spec.SourceShard, m.spec.TargetShard}[i]
		var slots, most, senders, mostSenders int
		if err := c.QueryRow(ctx, readUse).Scan(&slots, &most, &senders, &mostSenders); err != nil {
			return fmt.Errorf("shard %s: %w", shard, err)
		}
		if most-slots < needsSlots || mostSenders-senders < needsSlots {
			return fmt.Errorf("it waits for room: shard %s has %d of %d replication slots in use, and %d of %d senders of its log; "+
				"tell transfers that are observed to finish, or raise max_replication_slots and max_wal_senders", shard, slots, most, senders,
				mostSenders)
		}
	}
	return nil
}

// load reads the tables, once.
func (m *Mover) load(ctx context.Context) error {
	if m.tables != nil {
		return nil
	}
	var tables []*shape
	for _, t := range m.spec.Tables {
		s, err := readShape(ctx, m.source, t)
		if err != nil {
			return err
		}
		if s == nil {
			return &RefusedError{[]string{fmt.Sprintf("shard %s has no table %s", m.spec.SourceShard, t.Name)}}
		}
		if s.odd != "" { // it has become so since the plan
			return &RefusedError{[]string{fmt.Sprintf("table %s of shard %s %s", s.title(), m.spec.SourceShard, s.odd)}}
		}
		tables = append(tables, s)
	}
	m.tables = tables
	return nil
}

// replica keeps triggers and foreign keys of the target from acting on rows that come
// from the source, where they have acted already.
func (m *Mover) replica(ctx context.Context, c *pgx.Conn) error {
	_, err := c.Exec(ctx, "set session_replication_role = replica")
	if err == nil || !slices.ContainsFunc(m.tables, func(t *shape) bool { return t.triggers }) {
		return nil
	}
	return &RefusedError{[]string{fmt.Sprintf("the tables have triggers or foreign keys, and the user of shard %s may not set "+
		"session_replication_role: %v", m.spec.TargetShard, err)}}
}

// rowsOf estimates the rows of the key by the planner, for the progress.
func (m *Mover) rowsOf(ctx context.Context) (total int64) {
	for _, t := range m.tables {
		var text string
		if err := m.source.QueryRow(ctx, "explain (format text) select from "+t.quoted()+" where "+t.where).Scan(&text); err != nil {
			continue // an estimate is not worth an error
		}
		if _, rest, ok := strings.Cut(text, "rows="); ok {
			var n int64
			if _, err := fmt.Sscan(rest, &n); err == nil {
				total += n
			}
		}
	}
	return total
}

// positionOf reads what the target keeps about a direction; ok is false when it has
// nothing.
func positionOf(ctx context.Context, c *pgx.Conn, id string) (lsn pglogrepl.LSN, step string, ok bool, err error) {
	err = c.QueryRow(ctx, readPosition, id).Scan(&lsn, &step)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, "", false, nil
	}
	return lsn, step, err == nil, err
}
