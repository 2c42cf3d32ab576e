package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	engineintake "procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/postgres"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/store"
	"procaas/handlers"
)

// A member is a node of a test: an engine on a store of its own. All members of a
// crew write into one record of calls.
type member struct {
	*engine.Engine
	metrics *prometheus.Registry
	log     *logBook
	stop    func() error
}

// A crew is the nodes of a test.
type crew struct {
	t     *testing.T
	calls enginetest.Recorder

	// do is called by each handler; nothing when nil.
	do func(ctx context.Context, node string, c *engine.Call) error
}

// A logBook keeps what a node logs.
type logBook struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write implements [io.Writer].
func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBook) says(words string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), words)
}

const twoStages = `
flows: [{id: job, shared-state: {count: 0}}]
pipelines:
- id: work
  flow: job
  shared-state: {by: null}
  stages:
  - id: a
    handlers:
    - {id: left, step: {}, result: {by: !$ sources.left.response}}
    - {id: right, step: {}}
    - {id: add, set: {count: !$ shared-state.count + 1}}
  - {id: b, handlers: [{id: last, step: {}}]}
`

// join starts a node on the store at dsn.
func (c *crew) join(name, dsn string, lease time.Duration) *member {
	c.t.Helper()
	m := &member{metrics: prometheus.NewRegistry(), log: &logBook{}}
	log := slog.New(slog.NewTextHandler(m.log, nil))
	store, err := postgres.Open(c.t.Context(), dsn, postgres.Options{Migrate: true, Log: log})
	if err != nil {
		c.t.Fatal(err)
	}
	step := enginetest.Scripted("step", c.calls.Record(func(ctx context.Context, call *engine.Call, _ any) (model.Result, error) {
		if c.do != nil {
			if err := c.do(ctx, name, call); err != nil {
				return model.Result{}, err
			}
		}
		return model.Result{Response: name}, nil
	}))
	o := engine.DefaultOptions()
	o.Store, o.Types, o.Name, o.Lease, o.Log = store.Ports(), append(handlers.All(), step), name, lease, log
	o.Metrics = stats.NewMetrics(m.metrics)
	o.Bundle = enginetest.Load(c.t, twoStages, o.Types...)
	if m.Engine, err = engine.New(o); err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	m.stop = sync.OnceValue(func() error {
		cancel()
		err := <-ended
		_ = store.Close()
		return err
	})
	c.t.Cleanup(func() { _ = m.stop() })
	return m
}

// load submits events of some keys through all nodes until stop is closed, one
// after the other for each key, with the same id until there is an answer. It returns
// the runs of each key, in their order.
func (c *crew) load(keys int, stop <-chan struct{}, nodes ...*member) map[string][]string {
	var mu sync.Mutex
	var senders sync.WaitGroup
	runs := map[string][]string{}
	for k := range keys {
		senders.Go(func() {
			key := fmt.Sprint("k", k)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				run := c.submit(nodes, k+i, model.Event{ID: fmt.Sprint(key, "-", i), Source: "load", Type: "work", Key: key})
				mu.Lock()
				runs[key] = append(runs[key], run)
				mu.Unlock()
			}
		})
	}
	senders.Wait()
	return runs
}

func (c *crew) submit(nodes []*member, first int, ev model.Event) (run string) {
	for i := first; ; i++ {
		out, err := nodes[i%len(nodes)].Submit(c.t.Context(), []engineintake.Submission{{Event: ev}})
		if err == nil {
			if out[0].Err != nil {
				c.t.Errorf("event %s: %v", ev.ID, out[0].Err)
			}
			return out[0].Receipt.Run
		}
		wait(20 * time.Millisecond)
	}
}

// wait lets time pass for those who try again.
func wait(d time.Duration) { <-time.After(d) }

// settle waits until all runs have succeeded.
func (c *crew) settle(e *member, runs map[string][]string) {
	c.t.Helper()
	for key, of := range runs {
		for i, run := range of {
			c.eventually("run "+run+" of "+key+" succeeds", func() bool {
				v, err := e.RunByID(c.t.Context(), run)
				if err == nil && v.Status.Ended() && v.Status != model.Succeeded {
					c.t.Fatalf("run %s is %s: %s", run, v.Status, v.Error)
				}
				if err == nil && v.Status == model.Succeeded && v.SharedState["count"] != i+1 {
					c.t.Fatalf("run %d of %s has counted %v", i+1, key, v.SharedState["count"])
				}
				return err == nil && v.Status == model.Succeeded
			})
		}
	}
}

// eventually waits for something that comes soon, on a busy machine within minutes.
func (c *crew) eventually(what string, is func() bool) {
	c.t.Helper()
	patience.Until(c.t, what, is)
}

// checkCalls looks at the order of the calls of each key, and that none was made
// twice.
func (c *crew) checkCalls(runs map[string][]string) {
	c.t.Helper()
	place := map[string]int{}
	for _, of := range runs {
		for i, run := range of {
			place[run] = i
		}
	}
	seen := map[string]bool{}
	at := map[string]int{}
	for _, call := range c.calls.Calls() {
		if id := call.Run + " " + call.Path; seen[id] {
			c.t.Errorf("%s was called twice", id)
		} else {
			seen[id] = true
		}
		now := place[call.Run] * 2
		if strings.HasPrefix(call.Path, "work/b/") {
			now++
		}
		if now < at[call.Key] {
			c.t.Errorf("%s: %s of run %d was called after a later one", call.Key, call.Path, place[call.Run]+1)
		}
		at[call.Key] = now
	}
	if want := 3 * len(place); len(seen) != want {
		c.t.Errorf("want %d calls, have %d", want, len(seen))
	}
}

// count returns how often calls of the store have failed.
func (m *member) failures(t *testing.T, operation string) float64 {
	t.Helper()
	return m.sum(t, "procaas_store_errors_total", operation)
}

// sum adds up the series of a metric that have a label of this value, or none.
func (m *member) sum(t *testing.T, name, label string) (n float64) {
	t.Helper()
	families, err := m.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, v := range f.GetMetric() {
			if labels := v.GetLabel(); f.GetName() == name && (len(labels) == 0 || labels[0].GetValue() == label) {
				n += v.GetCounter().GetValue() + v.GetGauge().GetValue()
			}
		}
	}
	return n
}

// under lets a crew of two work while something is done to their store, and checks
// that nothing is lost, repeated or reordered.
func under(t *testing.T, dsn []string, harm func(nodes []*member)) {
	c := &crew{t: t}
	var nodes []*member
	for i, d := range dsn {
		nodes = append(nodes, c.join(fmt.Sprint("n", i), d, time.Minute))
	}
	stop := make(chan struct{})
	var runs map[string][]string
	var load sync.WaitGroup
	load.Go(func() { runs = c.load(16, stop, nodes...) })
	harm(nodes)
	close(stop)
	load.Wait()
	c.settle(nodes[0], runs)
	c.checkCalls(runs)
	t.Logf("%d runs of %d keys", len(slices.Concat(slices.Collect(maps.Values(runs))...)), len(runs))
	for _, m := range nodes {
		if err := m.stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
}

func TestHundredsOfAmbiguousCommitsRepeatNothing(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	p, through := proxied(t, dsn)
	q, through2 := proxied(t, dsn)
	under(t, []string{through, through2}, func(nodes []*member) {
		p.LoseCommits(0.3, 1)
		q.LoseCommits(0.3, 2)
		c := &crew{t: t}
		c.eventually("300 answers to commits are lost", func() bool { return p.Lost()+q.Lost() >= 300 })
		p.LoseCommits(0, 1)
		q.LoseCommits(0, 2)
		if n := nodes[0].failures(t, "commit"); n == 0 {
			t.Error("the metrics know of no commit that failed")
		}
	})
}

// failSometimes is a function for triggers: it fails as a server in trouble does.
const failSometimes = `
create function trouble() returns trigger language plpgsql as $$
declare r double precision := random();
begin
	if r < 0.04 then raise exception 'could not serialize access' using errcode = '40001';
	elsif r < 0.08 then raise exception 'deadlock detected' using errcode = '40P01';
	elsif r < 0.10 then raise exception 'canceling statement due to statement timeout' using errcode = '57014';
	elsif r < 0.12 then raise exception 'could not extend file: No space left on device' using errcode = '53100';
	elsif r < 0.13 then perform pg_terminate_backend(pg_backend_pid()); end if;
	return null;
end $$`

func TestErrorsOfTheServerRepeatNothing(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	c := connect(t, dsn)
	under(t, []string{dsn, dsn}, func([]*member) {
		run(t, c, failSometimes)
		tables := []string{"runs", "keys", "events", "nodes"}
		for _, table := range tables {
			run(t, c, "create trigger trouble after insert or update or delete on "+table+" for each statement execute function trouble()")
		}
		wait(2 * time.Second)
		for _, table := range tables {
			run(t, c, "drop trigger trouble on "+table)
		}
	})
}

func TestSlowAndCutConnectionsRepeatNothing(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	p, through := proxied(t, dsn)
	// Both nodes are cut off. When it is one, the other takes over what it was about to do.
	under(t, []string{through, through}, func([]*member) {
		p.Delay(50*time.Millisecond, time.Second)
		wait(time.Second)
		for range 5 {
			p.Cut()
			wait(100 * time.Millisecond)
		}
		p.Refuse(time.Second)
		wait(time.Second)
		p.Hold(time.Second)
		wait(time.Second)
	})
}

func TestRestartsOfPostgresRepeatNothing(t *testing.T) {
	t.Parallel()
	db := enginetest.OwnPostgres(t)
	under(t, []string{db.URL, db.URL}, func(nodes []*member) {
		for _, how := range []enginetest.Stop{enginetest.StopImmediate, enginetest.StopFast, enginetest.StopImmediate} {
			wait(300 * time.Millisecond)
			if err := db.Restart(t.Context(), how); err != nil {
				t.Fatal(err)
			}
		}
		// A longer one, which a node tells of.
		if err := db.Halt(enginetest.StopFast); err != nil {
			t.Fatal(err)
		}
		c := &crew{t: t}
		c.eventually("the node says that it is not ready", func() bool { return nodes[0].Healthy(t.Context()) != nil })
		c.eventually("metrics and log tell that the store is away", func() bool {
			return nodes[0].failures(t, "beat") > 0 && nodes[0].log.says("lease cannot be renewed")
		})
		if err := db.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.eventually("the node is ready again", func() bool { return nodes[0].Healthy(t.Context()) == nil })
	})
}

// With a standby that follows in step, a failover loses nothing that was accepted:
// the nodes find the new primary by themselves.
func TestFailoverRepeatsNothing(t *testing.T) {
	t.Parallel()
	primary := enginetest.OwnPostgres(t)
	standby := enginetest.StandbyOf(t, primary)
	p := connect(t, primary.URL)
	run(t, p, "alter system set synchronous_standby_names = '*'")
	run(t, p, "select pg_reload_conf()")
	dsn := strings.Replace(primary.URL, primary.Addr(), primary.Addr()+","+standby.Addr(), 1) + "&target_session_attrs=read-write"
	under(t, []string{dsn, dsn}, func(nodes []*member) {
		wait(500 * time.Millisecond)
		if err := primary.Halt(enginetest.StopImmediate); err != nil {
			t.Fatal(err)
		}
		if err := standby.Promote(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := connect(t, standby.URL)
		run(t, s, "alter system set synchronous_standby_names = ''")
		run(t, s, "select pg_reload_conf()")
		c := &crew{t: t}
		c.eventually("the node works on the new primary", func() bool { return nodes[0].Healthy(t.Context()) == nil })
		wait(500 * time.Millisecond)
	})
}

// A replica that lags is promoted. It has never heard of a node that joined meanwhile, and
// knows less of another one than it was answered. Neither may go on as if nothing had
// happened, and the next node gets no number that one of them has.
func TestFailoverToALaggingReplicaIsRefused(t *testing.T) {
	t.Parallel()
	primary := enginetest.OwnPostgres(t)
	standby := enginetest.StandbyOf(t, primary)
	dsn := strings.Replace(primary.URL, primary.Addr(), primary.Addr()+","+standby.Addr(), 1) + "&target_session_attrs=read-write"
	c := &crew{t: t}
	ready := func(m *member) func() bool { return func() bool { return m.Healthy(t.Context()) == nil } }
	old := c.join("old", dsn, time.Minute)
	c.eventually("the first node is ready", ready(old))
	c.eventually("the standby knows the first node", func() bool {
		var nodes int
		follower, err := pgx.Connect(t.Context(), standby.URL)
		if err != nil {
			return false
		}
		defer follower.Close(t.Context())
		return follower.QueryRow(t.Context(), "select count(*) from leases where beats > 0").Scan(&nodes) == nil && nodes == 1
	})
	if err := standby.Halt(enginetest.StopFast); err != nil {
		t.Fatal(err)
	}

	// What follows never reaches the standby.
	p := connect(t, primary.URL)
	beats := func() (n int64) {
		if err := p.QueryRow(t.Context(), "select max(beats) from leases").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := beats()
	late := c.join("late", dsn, time.Minute)
	paused := open(t, dsn)
	token, err := paused.Join(t.Context(), "paused", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	c.eventually("the second node is ready", ready(late))
	c.eventually("the first node has renewed its lease", func() bool { return beats() > before })
	if err := primary.Halt(enginetest.StopImmediate); err != nil {
		t.Fatal(err)
	}
	if err := standby.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}

	for _, m := range []*member{old, late} {
		c.eventually("the node refuses the store", func() bool { return errors.Is(m.Healthy(t.Context()), store.ErrLost) })
		if _, err := m.Submit(t.Context(), []engineintake.Submission{{Event: model.Event{Source: "s", Type: "work", Key: "k"}}}); !errors.Is(err,
			store.ErrLost) {
			t.Errorf("want no event taken in, have %v", err)
		}
		c.eventually("metrics and log tell that the store was set back", func() bool {
			return m.log.says("store is refused") && m.sum(t, "procaas_store_lost", "") == 1
		})
	}
	if r, err := openRestored(t, standby.URL).Adopt(t.Context(), "triggers/", false, store.Actor{Name: "eve"}); err != nil || r.Why == "" {
		t.Fatalf("want a server that was started after the last sign of a node refused, have %+v, %v", r, err)
	}
	fresh := c.join("fresh", dsn, time.Minute)
	c.eventually("a node that knows nothing else is ready", ready(fresh))
	nodes, err := fresh.Nodes(t.Context())
	if err != nil || slices.ContainsFunc(nodes, func(n records.NodeView) bool { return n.Node == token }) {
		t.Errorf("want another number than %d for each node, have %+v, %v", token, nodes, err)
	}
	c.eventually("the node that slept is refused", func() bool {
		_, err := paused.Claim(t.Context(), token, 10, "") // at first over a connection to the primary that is gone
		if err == nil {
			t.Fatal("the node that slept has claimed runs")
		}
		return errors.Is(err, store.ErrLost)
	})
	if _, err := paused.Beat(t.Context(), token, time.Minute, ""); !errors.Is(err, store.ErrLost) {
		t.Errorf("want the node that slept told that the store was set back, have %v", err)
	}
}

// A node whose commit is on its way for longer than its lease must not write, when
// another one has done the work meanwhile.
func TestCommitOnItsWayBeyondTheLeaseIsRefused(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	dsn := enginetest.Postgres(t)
	p, through := proxied(t, dsn)
	c := &crew{t: t}
	reached, release := make(chan struct{}), make(chan struct{})
	c.do = func(ctx context.Context, node string, call *engine.Call) error {
		if node == "slow" && call.Path == "work/a/left" {
			close(reached)
			<-release
		}
		return nil
	}
	slow := c.join("slow", through, lease)
	c.eventually("the first node is ready", func() bool { return slow.Healthy(t.Context()) == nil })
	id := c.submit([]*member{slow}, 0, model.Event{ID: "e", Source: "s", Type: "work", Key: "k"})
	<-reached
	p.Hold(time.Hour)
	close(release) // its outcome is written, but does not arrive before the other node has done the work
	quick := c.join("quick", dsn, time.Hour)
	c.settle(quick, map[string][]string{"k": {id}})
	p.Hold(0)
	c.eventually("the slow node finds out", func() bool { return slow.log.says("node is fenced") })
	c.eventually("the slow node is back", func() bool { return slow.Healthy(t.Context()) == nil })
	v, err := quick.RunByID(t.Context(), id)
	if err != nil || v.SharedState["by"] != "quick" || v.Status != model.Succeeded {
		t.Errorf("want the run as quick has left it, have %+v, %v", v, err)
	}
	keys := map[string]bool{}
	for _, call := range c.calls.Of("work/a/left") {
		keys[call.IdempotencyKey] = true
	}
	if n := len(c.calls.Of("work/a/left")); n != 2 || len(keys) != 1 {
		t.Errorf("want two calls with one key, have %d with %d", n, len(keys))
	}
	if n := len(c.calls.Of("work/b/last")); n != 1 {
		t.Errorf("want the last handler called once, by the node that owns the run, have %d", n)
	}
}

// The network holds what is sent, but acknowledges it. The node says so long before its calls time
// out. An event without an answer is not accepted, or it is, and its sender finds the same run.
func TestNodeSaysThatTheNetworkHoldsItsWrites(t *testing.T) {
	t.Parallel()
	p, through := proxied(t, enginetest.Postgres(t))
	c := &crew{t: t}
	m := c.join("n", through, time.Hour)
	c.eventually("the node is ready", func() bool { return m.Healthy(t.Context()) == nil })
	ev := model.Event{ID: "e", Source: "s", Type: "work", Key: "k"}
	p.Hold(time.Hour)
	answered := make(chan error, 1)
	go func() {
		_, err := m.Submit(context.WithoutCancel(t.Context()), []engineintake.Submission{{Event: ev}})
		answered <- err
	}()
	c.eventually("the node says what hangs", func() bool {
		err := m.Healthy(t.Context())
		return err != nil && strings.Contains(err.Error(), "a write to the store has taken ")
	})
	// The sender hears it while the write hangs.
	if err := <-answered; err == nil || !strings.Contains(err.Error(), "a write to the store has taken ") {
		t.Errorf("want an error that says what hangs, have %v", err)
	}
	p.Refuse(time.Hour) // what is held is lost
	p.Hold(0)
	p.Refuse(0)
	id := c.submit([]*member{m}, 0, ev)
	c.settle(m, map[string][]string{"k": {id}})
	c.eventually("the node is ready again", func() bool { return m.Healthy(t.Context()) == nil })
	c.checkCalls(map[string][]string{"k": {id}})
}
