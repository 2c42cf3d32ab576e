package shardmap

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A Prober looks at hosts. Many goroutines call it, but only one at a time for each host.
type Prober interface {
	// Probe looks at the host of a map at an address.
	Probe(ctx context.Context, m *Map, address string) Report

	// Close closes its connections.
	Close()
}

// Each host is looked at once in a period. The looks are spread over the period, so that one
// goroutine starts them all.
const (
	pollPeriod   = time.Second
	pollTurn     = 20 * time.Millisecond
	probeTimeout = 700 * time.Millisecond

	// maxProbes bounds the looks in flight. Those of hosts that do not answer wait for their
	// timeouts.
	maxProbes = 512
)

// A target is one host to look at.
type target struct {
	m      *Map
	shard  *shard
	host   int
	inside chan struct{} // has a token while a look is in flight
}

// A poller looks at all hosts of some maps.
type poller struct {
	prober  Prober
	targets []target
	slots   chan struct{}
	changed func(m *Map, s *shard, v *view) // called after each look
	work    sync.WaitGroup
}

func newPoller(maps []*Map, prober Prober, changed func(*Map, *shard, *view)) *poller {
	p := &poller{prober: prober, slots: make(chan struct{}, maxProbes), changed: changed}
	for _, m := range maps {
		for _, d := range m.Declared.Shards {
			for i := range d.Hosts {
				p.targets = append(p.targets, target{m, m.shards[d.ID], i, make(chan struct{}, 1)})
			}
		}
	}
	return p
}

// run looks at all hosts once a period until ctx ends.
func (p *poller) run(ctx context.Context) {
	defer p.work.Wait()
	n := len(p.targets)
	turns := min(n, int(pollPeriod/pollTurn))
	if turns == 0 {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(pollPeriod / time.Duration(turns)) // few hosts need few turns: a process at rest must not wake for nothing
	defer tick.Stop()
	// All at once at the start, because questions wait for the first view.
	p.start(ctx, p.targets)
	for turn := 0; ; turn = (turn + 1) % turns {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.start(ctx, p.targets[turn*n/turns:(turn+1)*n/turns])
	}
}

// start starts looks at hosts, except where one is in flight.
func (p *poller) start(ctx context.Context, targets []target) {
	for _, t := range targets {
		// There is one look at a host at a time, so a host that hangs misses its turns.
		select {
		case t.inside <- struct{}{}:
		default:
			continue
		}
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		p.work.Go(func() {
			defer func() { <-p.slots; <-t.inside }()
			p.look(ctx, t)
		})
	}
}

func (p *poller) look(ctx context.Context, t target) {
	bounded, cancel := context.WithTimeout(ctx, probeTimeout)
	r := p.prober.Probe(bounded, t.m, t.shard.addresses[t.host])
	cancel()
	if ctx.Err() != nil {
		return // this says nothing about the host
	}
	v := t.shard.take(t.host, r, time.Now())
	if p.changed != nil {
		p.changed(t.m, t.shard, v)
	}
}

// A connProber looks at hosts by PostgreSQL's protocol, over one connection to each.
type connProber struct {
	mu    sync.Mutex // guards conns
	conns map[string]*pgx.Conn
}

func newConnProber() *connProber { return &connProber{conns: map[string]*pgx.Conn{}} }

const (
	hostFacts = `select not pg_is_in_recovery(),
		case when pg_is_in_recovery() then coalesce((select received_tli from pg_stat_wal_receiver), 0)
			else ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int end,
		(case when pg_is_in_recovery() then coalesce(pg_last_wal_replay_lsn(), '0/0') else pg_current_wal_lsn() end - '0/0')::bigint,
		count(*) filter (where state = 'active' and pid <> pg_backend_pid())::int, count(*)::int, current_setting('max_connections')::int
		from pg_stat_activity where backend_type = 'client backend'`
	// A shard may be enrolled by an older release, or not at all: how many of these it has.
	fenceRelease = `select (to_regclass('procaas.compared') is not null)::int + (to_regprocedure('procaas.overdue()') is not null)::int
		+ (to_regclass('procaas.compared_maps') is not null)::int`
	fencesCompared  = `select exists (select from procaas.compared where timeline = procaas.timeline())`
	anyOverdue      = `, exists (select from procaas.overdue() where map = $1)`
	olderFenceFacts = fencesCompared + anyOverdue
	fenceFacts      = `select ` + mapCompared + anyOverdue
)

// Probe implements [Prober].
func (c *connProber) Probe(ctx context.Context, m *Map, address string) Report {
	var r Report
	var lsn int64
	conn, err := c.conn(ctx, m, address)
	if err == nil {
		err = conn.QueryRow(ctx, hostFacts).Scan(&r.Master, &r.Timeline, &lsn, &r.Load, &r.Connections, &r.MaxConnections)
	}
	r.LSN = uint64(lsn)
	if err == nil && r.Master {
		err = probeFences(ctx, conn, m.ID, &r)
	}
	if err != nil {
		c.drop(m, address)
		return Report{Err: err}
	}
	return r
}

// probeFences looks at the fences of a map on a master.
func probeFences(ctx context.Context, conn *pgx.Conn, shardMap string, r *Report) error {
	var release int
	if err := conn.QueryRow(ctx, fenceRelease).Scan(&release); err != nil {
		return err
	}
	switch release {
	case 0:
		r.Compared = true
		return nil
	case 1:
		return conn.QueryRow(ctx, fencesCompared).Scan(&r.Compared)
	case 2:
		return conn.QueryRow(ctx, olderFenceFacts, shardMap).Scan(&r.Compared, &r.Overdue)
	}
	return conn.QueryRow(ctx, fenceFacts, shardMap).Scan(&r.Compared, &r.Overdue)
}

// notThere reports whether a server does not know a function or table.
func notThere(err error) bool {
	var failure *pgconn.PgError
	return errors.As(err, &failure) && (failure.Code == "42P01" || failure.Code == "3F000" || failure.Code == "42883")
}

// conn returns the connection to a host.
func (c *connProber) conn(ctx context.Context, m *Map, address string) (*pgx.Conn, error) {
	key := m.ID + " " + address
	c.mu.Lock()
	conn := c.conns[key]
	c.mu.Unlock()
	if conn != nil && !conn.IsClosed() {
		return conn, nil
	}
	// Any session will do, because replicas are looked at as well.
	dsn, err := m.AdminDSN([]string{address}, "any")
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = "procaas poller"
	if conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.conns[key] = conn
	c.mu.Unlock()
	return conn, nil
}

// drop closes and forgets the connection to a host.
func (c *connProber) drop(m *Map, address string) {
	key := m.ID + " " + address
	c.mu.Lock()
	conn := c.conns[key]
	delete(c.conns, key)
	c.mu.Unlock()
	closeConn(conn)
}

func closeConn(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// Close implements [Prober].
func (c *connProber) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		closeConn(conn)
	}
	c.conns = map[string]*pgx.Conn{}
}
