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

// sides are the two shards of a transfer, with the operations of all steps.
type sides struct {
	spec   Spec
	limits Limits

	// next is the next epoch of the key. owner is the token of this coordinator.
	next  int64
	owner string

	back   bool // the way back: source and target are swapped, and so are the slots
	source *pgx.Conn
	target *pgx.Conn // applies changes, and holds the transfer's lock
	tables []*shape  // as on the source

	reported time.Time
}

// Texts are settings with which all sessions read and write values as the same texts. They replace
// those of the server, the database and the role.
var Texts = map[string]string{
	"datestyle": "ISO, MDY", "timezone": "UTC", "intervalstyle": "postgres", "extra_float_digits": "1", "bytea_output": "hex",
	"lc_monetary": "C", "client_encoding": "UTF8", "xmloption": "content", "array_nulls": "on",
}

// settings are the others of a transfer's sessions. They end what a lost process has left. The steps
// bound their statements themselves.
var settings = map[string]string{
	"application_name":                    "procaas transfer",
	"idle_in_transaction_session_timeout": "60000", "tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
	"row_security": "off", // an error instead of rows hidden by a policy
	"search_path":  "pg_catalog", "standard_conforming_strings": "on", "synchronous_commit": "on",
	"default_transaction_isolation": "read committed", "default_transaction_read_only": "off", "default_transaction_deferrable": "off",
	"statement_timeout": "0", "lock_timeout": "0",
}

func connect(ctx context.Context, dsn, shard string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("shard %s: its connection string is not understood", shard)
	}
	maps.Copy(config.RuntimeParams, settings)
	maps.Copy(config.RuntimeParams, Texts)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("shard %s: %w", shard, err)
	}
	return c, nil
}

// lock keeps other processes from working on the transfer while this one has its connections. It
// locks on both sides, because it writes to both.
func (m *sides) lock(ctx context.Context) error {
	for _, c := range []*pgx.Conn{m.source, m.target} {
		var got bool
		if err := c.QueryRow(ctx, "select pg_try_advisory_lock(hashtextextended($1, 81))", "procaas.transfer "+
			m.spec.ID).Scan(&got); err != nil {
			return err
		}
		if !got {
			return ErrBusy
		}
		if err := install(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (m *sides) at(point string) error {
	if m.spec.Hook == nil {
		return nil
	}
	if err := m.spec.Hook(point); err != nil {
		return &crashError{err}
	}
	return nil
}

// report reports progress, not too often.
func (m *sides) report(p Progress, always bool) {
	if m.spec.Report == nil || !always && time.Since(m.reported) < 250*time.Millisecond {
		return
	}
	m.reported = time.Now()
	if p.Total > 0 {
		p.Percent = min(100, 100*float64(p.Rows)/float64(p.Total))
	}
	m.spec.Report(p)
}

// slot returns the name of this direction's slot and publication.
func (m *sides) slot() string {
	if m.back {
		return m.spec.backSlot()
	}
	return m.spec.slot()
}

// direction returns the name of this direction's position and echo.
func (m *sides) direction() string {
	if m.back {
		return m.spec.ID + "/back"
	}
	return m.spec.ID
}

// against returns the name of the other direction's echo.
func (m *sides) against() string {
	if m.back {
		return m.spec.ID
	}
	return m.spec.ID + "/back"
}

// load reads the tables, once.
func (m *sides) load(ctx context.Context) error {
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

// replica disables triggers and foreign keys on the target for rows from the source, where they
// have acted already.
func (m *sides) replica(ctx context.Context, c *pgx.Conn) error {
	_, err := c.Exec(ctx, "set session_replication_role = replica")
	if err == nil || !slices.ContainsFunc(m.tables, func(t *shape) bool { return t.triggers }) {
		return nil
	}
	return &RefusedError{[]string{fmt.Sprintf("the tables have triggers or foreign keys, and the user of shard %s may not set "+
		"session_replication_role: %v", m.spec.TargetShard, err)}}
}

// rowsOf estimates the rows of the key with the planner, for the progress.
func (m *sides) rowsOf(ctx context.Context) (total int64) {
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

// positionOf reads the target's position of a direction. ok is false if there is none.
func positionOf(ctx context.Context, c *pgx.Conn, id string) (lsn pglogrepl.LSN, step string, ok bool, err error) {
	err = c.QueryRow(ctx, readPosition, id).Scan(&lsn, &step)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, "", false, nil
	}
	return lsn, step, err == nil, err
}
