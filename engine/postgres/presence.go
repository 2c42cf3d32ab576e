package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A lease must be long, so that a slow server or a busy machine does not make nodes fence each
// other. But a killed process leaves a trace at once: the system closes its connections, and the
// server ends their sessions. So each node tells the store which session is open as long as the
// node lives. It is the session that listens for hints. A node whose session is gone, and that is
// silent for two beats, is dead. So is one whose session is gone, and whose process was on the machine of
// the judge and has ended.
//
// The session of a live process may end too, for example when a network cuts connections. The
// process notices that. It tells the store with its next beat, and opens another session. Until
// then it starts no call later than two beats after its last beat. If all nodes lose their
// sessions, no node judges the others: only a node that has been connected all the time may. The
// server itself may also have changed: see the table.

// A session is open as long as its process lives.
type session struct {
	pid    uint32    // of the session on the server
	server time.Time // start of the server
	since  time.Time // start of the session, by the server's clock
	lost   chan struct{}
}

// A presence has what the nodes of a process have told the store about its session.
type presence struct {
	mu      sync.Mutex // guards the following
	session *session   // nil if there is none
	told    map[int64]*session
}

// open notes the session of a connection, unless there is a pooler, because then the session is not
// the process's own. The caller closes it when the connection ends.
func (p *presence) open(ctx context.Context, c *pgx.Conn) (opened *session, err error) {
	s := &session{lost: make(chan struct{})}
	if err := c.QueryRow(ctx, "select pg_backend_pid(), pg_postmaster_start_time(), clock_timestamp()").Scan(&s.pid, &s.server,
		&s.since); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.pid == c.PgConn().PID() {
		p.session = s
	}
	return s, nil
}

// close notes that a session is gone.
func (p *presence) close(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session = nil
	close(s.lost)
}

const (
	withdrawSession = "delete from presence where node = $1"
	tellSession     = `insert into presence (node, session, server, process)
	select $1::bigint, $2::int, $3::timestamptz, $4::text
	where pg_postmaster_start_time() = $3 and exists (select from pg_stat_get_activity($2))`
)

// tell makes a beat store the node's session, unless it is stored already. It notes the session in
// now, nil for none.
func (p *presence) tell(t *tx, node int64, process string, now **session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*now = p.session
	if last, ok := p.told[node]; ok && last == *now {
		return
	}
	t.queue(withdrawSession, node)
	if s := *now; s != nil {
		t.queue(tellSession, node, s.pid, s.server, process).Exec(func(c pgconn.CommandTag) error {
			if c.RowsAffected() == 0 { // it is of another server, or gone
				*now = nil
			}
			return nil
		})
	}
}

// own returns the session of this process, and since when it has had it. The time is in the future
// if there is none.
func (p *presence) own() (since time.Time, pid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == nil {
		return time.Now().AddDate(1000, 0, 0), 0
	}
	return p.session.since, p.session.pid
}

// heard notes what the last beat of a node has told.
func (p *presence) heard(node int64, s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told[node] = s
}

// A node whose session is gone is dead after the [store.Silence] of its lease. The judging node
// must have had a session from that node's last beat until now.
const (
	findAbsent = `select node, beats, process, seen + least((lease_until - seen) * 2 / 3, interval '1.6 s') < clock_timestamp()
	and seen > $1 and exists (select from pg_stat_get_activity($2))
	from presence join leases using (node) join nodes using (node)
	where gone is null and lease_until >= clock_timestamp() and server = pg_postmaster_start_time()
	and not exists (select from pg_stat_get_activity(session))`
	endLease        = "update leases set lease_until = seen where node = $1 and beats = $2"
	forgetPresences = "delete from presence where node <> all (array (select node from nodes where gone is null))"
)

// An absent node is one whose session is gone.
type absent struct {
	node, beats int64
	process     string
	silent      bool
}

// judge ends the leases of nodes that are certainly dead, and reports whether there are any. Their
// session is gone, and they are silent or their process was on this machine and has ended. A beat
// that comes meanwhile proves the contrary.
func (p *presence) judge(ctx context.Context, pool *pgxpool.Pool) (dead bool, err error) {
	since, pid := p.own()
	r, err := pool.Query(ctx, findAbsent, since, pid)
	if err != nil {
		return false, err
	}
	gone, err := pgx.CollectRows(r, func(r pgx.CollectableRow) (a absent, err error) {
		return a, r.Scan(&a.node, &a.beats, &a.process, &a.silent)
	})
	for _, a := range gone {
		if err != nil || !a.silent && !hasEnded(a.process) {
			continue
		}
		var ended pgconn.CommandTag
		ended, err = pool.Exec(ctx, endLease, a.node, a.beats)
		dead = dead || ended.RowsAffected() > 0
	}
	return dead, err
}
