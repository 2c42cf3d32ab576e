package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/clock"
)

// These are the steps that the target stores with its position.
const (
	stepCopied   = "copied"
	stepAnalyzed = "analyzed"
)

// Copy copies the source as of one position of its log to the target, and leaves a slot that
// continues from there. It does nothing if it has done so before and the slot still works.
func (m *Mover) Copy(ctx context.Context) error { return final(m.ensureCopy(ctx)) }

func (m *Mover) ensureCopy(ctx context.Context) error {
	if err := m.load(ctx); err != nil {
		return err
	}
	lsn, step, ok, err := positionOf(ctx, m.target, m.direction())
	if err != nil {
		return err
	}
	// The transaction of the copy stores the position, so if there is one, the rows are complete.
	// An error counts as an unusable slot, which at worst costs an unneeded copy.
	if ok && m.slotGood(ctx, lsn) == nil {
		if step == stepAnalyzed {
			return nil
		}
		return m.analyze(ctx)
	}
	if err := m.clear(ctx); err != nil {
		return err
	}
	if err := m.publish(ctx, m.source, m.spec.slot(), m.against()); err != nil {
		return err
	}
	if err := m.copy(ctx); err != nil {
		return err
	}
	return m.analyze(ctx)
}

// clear removes leftovers of an earlier attempt. Slots come first, so that none of them reads the
// deletions.
func (m *Mover) clear(ctx context.Context) error {
	if err := m.fenceTarget(ctx, m.target, "closed"); err != nil {
		return err
	}
	if err := m.at("clear"); err != nil {
		return err
	}
	if err := m.dropStreams(ctx); err != nil {
		return err
	}
	if err := m.forget(ctx); err != nil {
		return err
	}
	return m.remove(ctx, m.target, "clear")
}

// publish creates the publication of one direction. It comes before the slot, because a slot cannot
// decode with a newer publication.
func (m *sides) publish(ctx context.Context, c *pgx.Conn, name, echo string) error {
	if err := m.at("publication"); err != nil {
		return err
	}
	err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		// A vacuum to prevent wraparound holds the lock that this needs.
		if _, err := tx.Exec(ctx, lockTimeout(m.limits.DDL)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "drop publication if exists "+quote(name)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, m.publication(name, echo))
		return err
	})
	if err != nil {
		return fmt.Errorf("create publication %s: %w", name, err)
	}
	return nil
}

// publication returns the statement that creates the publication of one direction.
func (m *sides) publication(name, echo string) string {
	var parts []string
	for _, t := range m.tables {
		parts = append(parts, t.quoted()+" where ("+t.where+")")
	}
	own := " where (id in (" + literal(m.spec.ID) + ", " + literal(echo) + "))"
	parts = append(parts, "procaas.transfer_barrier"+own, "procaas.transfer_echo"+own)
	return "create publication " + quote(name) + " for table " + strings.Join(parts, ", ")
}

// errTried rolls back a trial.
var errTried = errors.New("tried")

// tryPublish refuses what a server cannot publish, such as a filter by a column of a user-defined
// type. Otherwise the copy would fail forever.
func (m *sides) tryPublish(ctx context.Context) error {
	var reasons []string
	for i, c := range []*pgx.Conn{m.source, m.target} {
		err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, lockTimeout(m.limits.DDL)); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, m.publication(m.spec.slot()+"_try", "")); err != nil {
				return err
			}
			return errTried
		})
		var pg *pgconn.PgError
		switch {
		case errors.Is(err, errTried):
		// the request is invalid, whatever the state of the server
		case errors.As(err, &pg) && slices.Contains([]string{"0A", "22", "42"}, pg.Code[:2]):
			shard := []string{m.spec.SourceShard, m.spec.TargetShard}[i]
			reasons = append(reasons, strings.TrimSuffix(fmt.Sprintf("shard %s does not publish the rows: %s: %s", shard, pg.Message, pg.Detail),
				": "))
		default:
			return fmt.Errorf("try a publication: %w", err)
		}
	}
	if len(reasons) > 0 {
		return &RefusedError{reasons}
	}
	return nil
}

// createSlot creates a slot. The exported snapshot lives until the connection's next command. It
// waits for older transactions, which may be prepared ones that never end, so it has a timeout.
func (m *sides) createSlot(ctx context.Context, dsn, name string, temporary bool) (*pgconn.PgConn, pglogrepl.LSN, string, error) {
	ctx, cancel := context.WithTimeout(ctx, m.limits.Slot)
	defer cancel()
	conn, err := connectReplication(ctx, dsn)
	if err != nil {
		return nil, 0, "", err
	}
	slot, err := pglogrepl.CreateReplicationSlot(ctx, conn, name, "pgoutput", pglogrepl.CreateReplicationSlotOptions{
		Temporary: temporary, SnapshotAction: "EXPORT_SNAPSHOT",
	})
	if err != nil {
		closeNow(conn)
		if ctx.Err() != nil {
			return nil, 0, "", fmt.Errorf("create slot %s: older transactions of the server, or prepared ones, have not ended within %v: %w", name,
				m.limits.Slot, err)
		}
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42710" { // duplicate_object
			return nil, 0, "", fmt.Errorf("%w: slot %s is there already", ErrBusy, name) // of a process that was killed
		}
		return nil, 0, "", fmt.Errorf("create slot %s: %w", name, err)
	}
	lsn, err := pglogrepl.ParseLSN(slot.ConsistentPoint)
	if err != nil {
		closeNow(conn)
		return nil, 0, "", err
	}
	return conn, lsn, slot.SnapshotName, nil
}

// copy fills the target in one transaction, and stores the position.
func (m *Mover) copy(ctx context.Context) error {
	if err := m.at("slot"); err != nil {
		return err
	}
	total := m.rowsOf(ctx)
	slot, lsn, snapshot, err := m.createSlot(ctx, m.spec.Source, m.slot(), false)
	if err != nil {
		return err
	}
	defer closeNow(slot)
	if err := m.at("copy"); err != nil {
		return err
	}
	if err := m.replica(ctx, m.target); err != nil {
		return err
	}
	// Its snapshot is that of the slot: the stream has exactly the changes that the copy does not
	// see.
	read, err := m.source.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer func() { _ = read.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := read.Exec(ctx, "set transaction snapshot "+literal(snapshot)); err != nil {
		return fmt.Errorf("take the snapshot of the slot: %w", err)
	}
	progress := &copied{mover: m, total: total, rate: m.limits.BytesRate, began: time.Now()}
	err = pgx.BeginFunc(ctx, m.target, func(tx pgx.Tx) error {
		for _, t := range m.tables {
			if err := m.copyTable(ctx, read.Conn(), tx.Conn(), t, progress); err != nil {
				return fmt.Errorf("copy table %s: %w", t.title(), err)
			}
		}
		if err := m.at("copied"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, putPosition, m.direction(), lsn, stepCopied)
		return err
	})
	if err != nil {
		return err
	}
	m.report(Progress{Step: "copy", Rows: progress.rows, Total: progress.rows, Bytes: progress.bytes}, true)
	return nil
}

// copyTable copies the rows of one table in the order of its primary key, so that the target's
// index grows at its end, and neighbors are stored together.
func (m *sides) copyTable(ctx context.Context, from, to *pgx.Conn, t *shape, p *copied) error {
	format := ""
	if t.binary() {
		format = " with (format binary)"
	}
	order := ""
	if len(t.primary) > 0 {
		order = " order by " + quoteAll(t.primary)
	}
	out := "copy (select " + t.list() + " from " + t.quoted() + " where " + t.where + order + ") to stdout" + format
	in := "copy " + t.quoted() + " (" + t.list() + ") from stdin" + format
	// Rows are piped from one server to the other and never collected here.
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := from.PgConn().CopyTo(ctx, io.MultiWriter(w, p), out)
		_ = w.CloseWithError(err) // nil ends the pipe without an error
		done <- err
	}()
	tag, err := to.PgConn().CopyFrom(ctx, r, in)
	_ = r.CloseWithError(errors.New("the target takes no more")) // the target has stopped reading
	readErr := <-done
	p.rows += tag.RowsAffected()
	return errors.Join(err, readErr)
}

// copied counts the bytes of a copy, and limits their rate.
type copied struct {
	mover       *Mover
	rows, total int64
	bytes       int64
	rate        int64
	began       time.Time
}

// Write implements io.Writer.
func (c *copied) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	if c.rate > 0 {
		due := c.began.Add(time.Duration(float64(c.bytes) / float64(c.rate) * float64(time.Second)))
		time.Sleep(min(time.Until(due), time.Second))
	}
	c.mover.report(Progress{Step: "copy", Rows: c.rows, Total: c.total, Bytes: c.bytes}, false)
	return len(p), nil
}

// analyze updates the target's planner statistics. Without them the first writes after the switch
// use the wrong index, and take thousands of times as long.
func (m *sides) analyze(ctx context.Context) error {
	if err := m.at("analyze"); err != nil {
		return err
	}
	for _, t := range m.tables {
		if _, err := m.target.Exec(ctx, "analyze "+t.quoted()); err != nil {
			return fmt.Errorf("analyze table %s: %w", t.title(), err)
		}
	}
	_, err := m.target.Exec(ctx, "update procaas.transfer_position set step = $2 where id = $1", m.direction(), stepAnalyzed)
	return err
}

const readSlot = `select coalesce(wal_status, 'reserved'), coalesce(confirmed_flush_lsn, '0/0') from pg_replication_slots
where slot_name = $1 and database = current_database()`

// slotGood returns why a slot cannot continue from a position, or nil.
func (m *sides) slotGood(ctx context.Context, from pglogrepl.LSN) error {
	var status string
	var confirmed pglogrepl.LSN
	err := m.source.QueryRow(ctx, readSlot, m.slot()).Scan(&status, &confirmed)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return &RestartError{fmt.Sprintf("slot %s is not there: the master of shard %s has changed, or somebody has dropped it", m.slot(),
			m.spec.SourceShard)}
	case err != nil:
		return err
	case status == "lost":
		return &RestartError{fmt.Sprintf("slot %s is lost: it was further behind than max_slot_wal_keep_size allows", m.slot())}
	case confirmed > from:
		return &RestartError{fmt.Sprintf("shard %s has forgotten changes that were applied: its slot is at %s, and the target at %s",
			m.spec.TargetShard, confirmed, from)}
	}
	return nil
}

// dropSlot drops a slot, and ends the process that reads it.
func dropSlot(ctx context.Context, c *pgx.Conn, name string) error {
	var pid *int
	err := c.QueryRow(ctx, "select active_pid from pg_replication_slots where slot_name = $1", name).Scan(&pid)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	for range 50 { // five seconds, until the walsender notices
		if pid != nil {
			if _, err := c.Exec(ctx, "select pg_terminate_backend($1)", *pid); err != nil {
				return err
			}
		}
		_, err = c.Exec(ctx, "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = $1", name)
		var pg *pgconn.PgError
		if err == nil || !errors.As(err, &pg) || pg.Code != "55006" { // object_in_use
			break
		}
		if err := clock.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		if err := c.QueryRow(ctx, "select max(active_pid) from pg_replication_slots where slot_name = $1", name).Scan(&pid); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("drop slot %s: %w", name, err)
	}
	return nil
}

// dropStreams drops the slots and publications of both directions.
func (m *Mover) dropStreams(ctx context.Context) error {
	if m.apply != nil {
		m.apply.stream.close()
		m.apply = nil
	}
	for _, c := range []*pgx.Conn{m.source, m.target} {
		for _, name := range []string{m.spec.slot(), m.spec.backSlot()} {
			if err := m.dropStream(ctx, c, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropStream drops a slot and the publication of the same name.
func (m *sides) dropStream(ctx context.Context, c *pgx.Conn, name string) error {
	if err := dropSlot(ctx, c, name); err != nil {
		return err
	}
	err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockTimeout(m.limits.DDL)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "drop publication if exists "+quote(name))
		return err
	})
	if err != nil {
		return fmt.Errorf("drop publication %s: %w", name, err)
	}
	return nil
}
