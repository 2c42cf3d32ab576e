package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A lease has to be long, since a slow server or a busy machine must not make nodes end each
// other. But a process that is killed leaves a trace at once: the system closes its
// connections, and the server ends their sessions. So nodes say which session is open for as
// long as they live, the one that hears hints. A node whose session is gone, and that is
// silent for two beats, is dead.
//
// The session of a process that lives may end as well, as when a network cuts its connections
// off. Then the process hears of it, says so with its next beat, and opens another one; until that
// beat it starts no call two beats after its last one. Where all are cut off, nobody judges
// the others: only who was connected all the time may. The server, too, may have been another
// one: see the table.

// A session is open for as long as its process lives.
type session struct {
	pid    uint32    // at the server
	server time.Time // when the server started
	since  time.Time // by its clock
	lost   chan struct{}
}

// A presence is what the nodes of a process have told of its session.
type presence struct {
	mu      sync.Mutex // guards the following
	session *session   // nil while there is none
	told    map[int64]*session
}

// open notes the session of a connection, unless somebody stands between: then the session
// is not the process's own. The caller closes it when the connection has ended.
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

// close says that a session is gone.
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

// tell lets a beat say which session the node has, unless that was said before, and notes
// that in now, which is nil when the node has none.
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

// own returns the session of this process, and since when it has had it; a time to come when it
// has none.
func (p *presence) own() (since time.Time, pid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == nil {
		return time.Now().AddDate(1000, 0, 0), 0
	}
	return p.session.since, p.session.pid
}

// heard notes what the last beat of a node has said.
func (p *presence) heard(node int64, s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told[node] = s
}

// The silence after which a node is dead whose session is gone is [store.Silence] of its lease.
// Whoever judges must have had a session from its last beat until now.
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

// judge ends the leases of nodes that are dead for certain, and reports whether there are some:
// those whose session is gone, when they are silent as well, or their process was on this
// machine and is not any more. A beat that comes meanwhile proves the contrary.
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
