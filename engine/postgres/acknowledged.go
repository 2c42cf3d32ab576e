package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"procaas/engine/sqlstore"
	"procaas/engine/store"
)

// This file detects a server that lacks what was acknowledged to this process. The count of beats
// cannot show the loss of what a server acknowledged after the last beat. It says nothing either
// once the node has been fenced and has joined again. So the process remembers its last transaction,
// and looks for it when a server was started or promoted since.

// A mark says where in its log a server acknowledged a transaction.
//
// The transaction is in the log behind lsn. A server that recovered, from a crash or as a standby,
// remembers where its log ended then, in replayed. If that is not behind lsn, the transaction is not
// in its log. A transaction at the very end may be there without its commit. Then the server says
// that it was aborted.
type mark struct {
	system   int64     // of the cluster; positions of another one mean nothing
	started  time.Time // when the server was started
	replayed int64     // where its recovery ended; 0 if it started without one
	lsn      int64     // end of the log, before the transaction committed
	xid      int64     // 0 if the transaction wrote nothing
	heard    time.Time
}

// An acknowledged is the last transaction that a server has acknowledged to this process.
type acknowledged struct {
	log *slog.Logger

	mu   sync.Mutex // guards the following
	off  bool       // the server does not answer these questions
	last mark
}

const (
	readMark = `select coalesce(pg_current_xact_id_if_assigned()::text::bigint, 0), (pg_current_wal_insert_lsn() - '0/0')::bigint,
	coalesce((pg_last_wal_replay_lsn() - '0/0')::bigint, 0), pg_postmaster_start_time()`
	readServer = `select system_identifier, pg_is_in_recovery(), pg_postmaster_start_time(),
	coalesce((pg_last_wal_replay_lsn() - '0/0')::bigint, 0),
	case when pg_is_in_recovery() then 0 else (pg_current_wal_insert_lsn() - '0/0')::bigint end,
	case when pg_is_in_recovery() then 0 else ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint end,
	case when $1::bigint = 0 then true
		when $1::bigint::text::xid8 >= pg_snapshot_xmax(pg_current_snapshot()) then false
		else coalesce(pg_xact_status($1::bigint::text::xid8) <> 'aborted', true) end
	from pg_control_system()`
)

// A server is what a server says about itself.
type server struct {
	mark
	timeline int64 // of its log; 0 if it does not say so, or is a standby
	standby  bool
	knows    bool // the transaction that it was asked about, or has forgotten whether it committed
}

// These are the keys of what a connection knows about its server.
const (
	ofSystem = "system" // int64: see mark
	ofLoss   = "loss"   // error: why nothing is written through the connection
)

// queueMark reads the mark of a transaction with its last statements.
func (a *acknowledged) queueMark(t *tx) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.off {
		return
	}
	t.before = a.last
	t.mark.system, _ = t.conn.Conn().PgConn().CustomData()[ofSystem].(int64)
	t.queue(readMark).QueryRow(value(&t.mark.xid, &t.mark.lsn, &t.mark.replayed, &t.mark.started))
}

// note remembers a transaction that a server has committed. The error is [store.ErrLost] if the server has recovered since it, or
// another one, committed what was acknowledged before, and lacks that. So the transaction must not be acknowledged to anybody. Behind a
// pooler, no connection is made that would ask a server after a failover.
//
// before is the last transaction as it was when the mark was asked for. What was acknowledged later says nothing, since the answer with
// the mark may come late, from a server that has been restarted since.
func (a *acknowledged) note(m, before mark) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.xid == 0 {
		return nil
	}
	if m.system == before.system && before.xid != 0 && m.recoveredSince(before) && m.replayed <= before.lsn {
		return store.SetBack(endedAt(m.replayed, before), before.heard)
	}
	if m.system == a.last.system && m.lsn < a.last.lsn {
		return nil
	}
	m.heard = time.Now()
	a.last = m
	return nil
}

// recoveredSince reports whether the server of m has recovered since it, or another one, wrote another mark.
func (m mark) recoveredSince(other mark) bool {
	return m.replayed != 0 && !(m.started.Equal(other.started) && m.replayed == other.replayed)
}

// endedAt says that the log of a server ended before a transaction.
func endedAt(end int64, m mark) string {
	return fmt.Sprintf("its log ended at %s when it was started or promoted, and it has acknowledged a transaction behind %s", formatLSN(end),
		formatLSN(m.lsn))
}

// check asks the server of a connection for the last transaction. The error is [store.ErrLost] if
// the server lacks it. The result is zero if the server does not answer such questions.
func (a *acknowledged) check(ctx context.Context, c *pgx.Conn) (s server, err error) {
	last, off := a.wanted()
	if off {
		return s, nil
	}
	err = c.QueryRow(ctx, readServer, pgx.QueryExecModeExec, last.xid).Scan(s.answers()...)
	if isDenied(err) {
		a.turnOff(err)
		return server{}, nil
	}
	if err != nil {
		return s, err
	}
	return s, s.has(last, c)
}

// wanted returns the last transaction. off says that the server is not asked for it.
func (a *acknowledged) wanted() (last mark, off bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, a.off
}

// answers returns where the answers of readServer go.
func (s *server) answers() []any {
	return []any{&s.system, &s.standby, &s.started, &s.replayed, &s.lsn, &s.timeline, &s.knows}
}

// has returns an error if the server, which has answered on a connection, lacks a transaction.
func (s *server) has(last mark, c *pgx.Conn) error {
	c.PgConn().CustomData()[ofSystem] = s.system
	if lacks := s.lacks(last); lacks != "" {
		return store.SetBack(lacks, last.heard)
	}
	return nil
}

// errStandby reports a server that cannot say yet what it lacks, as it may be promoted at any moment.
var errStandby = errors.New("the server is a standby, or it still recovers, so nothing can be written there")

// checkPrimary is [acknowledged.check], and refuses a standby.
func (a *acknowledged) checkPrimary(ctx context.Context, c *pgx.Conn) (server, error) {
	s, err := a.check(ctx, c)
	if err == nil && s.standby {
		err = errStandby
	}
	return s, err
}

// lacks says what of a mark the server lacks. It is empty if the server has everything, or cannot
// tell.
func (s *server) lacks(m mark) string {
	end := s.lsn
	if s.recoveredSince(m) {
		end = s.replayed // it has recovered since; what it has written since may be anything
	}
	switch {
	case m.xid == 0 || s.standby || s.system != m.system:
		return ""
	case end <= m.lsn:
		return endedAt(end, m)
	case !s.knows:
		return fmt.Sprintf("it does not know transaction %d, which it has acknowledged", m.xid)
	}
	return ""
}

// isDenied reports whether the server has no such function, or not for this role.
func isDenied(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "42501" || e.Code == "42883" || e.Code == "0A000")
}

func (a *acknowledged) turnOff(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.off = true
	a.log.Warn("the server does not say where its log ends: a failover that loses the last second goes unnoticed", "error", why)
}

func formatLSN(lsn int64) string { return fmt.Sprintf("%X/%X", uint64(lsn)>>32, uint32(lsn)) }

// intact returns an error if a node must not renew its lease: an [store.ErrLost] if the server lacks
// what was acknowledged, or another error if it is a standby, or if somebody has brought newer tables.
// A connection asks the server when it is made. Behind a pooler, another server may be behind the same
// connection. Each beat asks, so all questions are one round trip.
func (d *database) intact(ctx context.Context) error {
	return d.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		var (
			s               server
			id, found, text string
			was             origin
			b               pgx.Batch
		)
		last, off := d.acked.wanted()
		answered := off
		if !off {
			b.Queue(readServer, last.xid).QueryRow(func(r pgx.Row) error {
				err := r.Scan(s.answers()...)
				answered = err == nil
				return err
			})
		}
		b.Queue(readIncarnation).QueryRow(value(&id, &was.system, &was.timeline))
		b.Queue(sqlstore.ListTables(d.known, existing)).QueryRow(value(&found))
		tables, _ := d.tables.Load().(string)
		b.Queue(sqlstore.SelectVersions(d.known, tables)).QueryRow(value(&text))
		err := c.SendBatch(ctx, &b).Close()
		if answered && !off {
			if lost := s.has(last, c.Conn()); lost != nil {
				return lost
			}
			if s.standby {
				return errStandby
			}
		}
		if err != nil {
			d.tables.Store("") // one of them may be gone
			if !answered && isDenied(err) {
				d.acked.turnOff(err) // for the next beat
			}
			return err
		}
		if err := d.inc.confirm(ctx, c, id, was, s); err != nil {
			return err
		}
		have, err := sqlstore.ParseVersions(d.known, text)
		if found != tables {
			d.tables.Store(found)
			have, err = versions(ctx, d.known, c)
		}
		if err != nil {
			return err
		}
		return sqlstore.RefuseNewer(d.known, have)
	})
}
