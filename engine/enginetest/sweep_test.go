package enginetest_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"procaas/cmd/procaas/addons"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/engine"
	"procaas/engine/checkpoint"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/postgres"
	"procaas/engine/records"
	"procaas/engine/sqlite"
	"procaas/engine/store"
	"procaas/engine/stub"
)

// sweepFlow has three stages, a parallel one of two calls, an emit beside a wait and a
// detached call, and a call of a pipeline that builds on all that; then the event that it emitted.
// Beside them is a pipeline that only computes, whose run is stored with its end.
const sweepFlow = `
services:
  - {id: svc, url: "http://127.0.0.1:9", timeout: 60s}
flows:
  - id: order
    key: !$ event.payload.id
    shared-state: {log: []}
    states:
      initial: created
      final: [done]
      transitions:
        - {from: created, on: begin, to: searching}
        - {from: searching, on: found, to: done}
pipelines:
  - id: begin
    flow: order
    shared-state: {a: 0, b: 0}
    stages:
      - id: first
        handlers:
          - {id: a, request: {service: svc, path: /a, body: {}}, result: {a: !$ sources.a.response.n}}
          - {id: b, request: {service: svc, path: /b, body: {}}, result: {b: !$ sources.b.response.n}}
      - id: second
        handlers:
          - {id: tell, emit: {type: found, payload: {id: !$ flow.key}}}
          - {id: pause, wait: {for: 20ms}}
          - {id: mail, critical: false, detached: true, deadline: 5m, request: {service: svc, path: /mail, body: {}}}
      - id: third
        handlers:
          - id: call
            call: {pipeline: adding, with: {sum: !$ shared-state.a + shared-state.b}}
            result: {log: !$ "shared-state.log + [sources.call.response.sum]"}
  - id: adding
    inputs: {sum: {type: integer}}
    outputs: {sum: !$ sources.c.response.sum}
    stages:
      - id: only
        handlers: [{id: c, request: {service: svc, path: /c, body: {sum: !$ inputs.sum}}}]
  - id: found
    flow: order
    stages:
      - id: last
        handlers:
          - {id: d, request: {service: svc, path: /d, body: {}}, result: {log: !$ "shared-state.log + ['found']"}}
  - id: totals
    outputs: {total: !$ shared-state.total}
    shared-state: {total: 0}
    stages: [{id: only, handlers: [{id: sum, set: {total: !$ event.payload.a + event.payload.b}}]}]
`

const sweepStub = `
services:
  - id: svc
    routes:
      - {method: POST, path: /a, reply: {body: {n: 1}}}
      - {method: POST, path: /b, reply: {body: {n: 2}}}
      - {method: POST, path: /c, reply: {body: {sum: !$ request.body.sum}}}
      - {method: POST, path: /d, reply: {body: {}}}
      - {method: POST, path: /mail, latency: 40ms, reply: {body: {}}}
`

// sweepStages tells the last stage in which each handler may call.
var sweepStages = map[string]int{"begin/first/a": 0, "begin/first/b": 0, "begin/second/mail": 2, "adding/only/c": 2, "found/last/d": 0}

// sweepWays tells the calls that a handler is inside of.
var sweepWays = map[string]string{"adding/only/c": "begin/third/call>"}

// sweepEnv passes the sweepJob to the process that is killed.
const sweepEnv = "PROCAAS_TEST_SWEEP"

// A sweepJob is what a process shall do: take one event to its end, and die at
// one of its I/Os.
type sweepJob struct {
	Store, Service, Event string
	Of                    string // the kind of I/O that counts; empty for all
	At                    int    // the I/O at which it dies, counted from 1; 0 for none
	After                 bool
}

func (j sweepJob) String() string {
	when := "before"
	if j.After {
		when = "after"
	}
	return fmt.Sprintf("%s I/O %s %d", when, j.Of, j.At)
}

// What the process says.
const (
	sweepDied = "sweep died at "
	sweepDone = "sweep done "
)

// A sweepReport is what the process has found at the end.
type sweepReport struct {
	IOs    int
	Entity checkpoint.EntityView
	Runs   []checkpoint.RunView // in the order of acceptance
	Totals checkpoint.RunView   // of the event that is only computed
}

// TestCrashAtEveryIO takes one event, beside one that is only computed, to its end, once for each I/O of the engine:
// join, beat, accept, claim, call, commit, wake and leave. The process dies right
// before it, and right after it; then another one takes over. Whatever the
// moment, the event and the one that it emits run to their ends once and in
// order, handlers whose outcome was durable are not called again, others with the
// same key, and the state is that of a run without a crash.
//
// The moment before an operation leaves what the one after the former operation left, unless others go on at once. So each kind is
// killed before only once, and each operation only with -every-moment.
func TestCrashAtEveryIO(t *testing.T) {
	if job := os.Getenv(sweepEnv); job != "" {
		sweepUntilKilled(t, job)
		return
	}
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		sweepAll(t, func(t *testing.T) string { return filepath.Join(t.TempDir(), "sweep.db") })
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		sweepAll(t, func(t *testing.T) string { return enginetest.MigratedPostgres(t) })
	})
}

var everyMoment = flag.Bool("every-moment", false, "kill the process before each operation, too, not only after it")

// sweepLanes is how many processes are swept at once, each on a store of its own.
const sweepLanes = 5

// sweepLease is so long that no process loses its node because it stood still: it would
// repeat calls that were in flight then, without a death that explains it. The lease of a
// dead one is cut short by [sweeper.expire].
const sweepLease = 2 * time.Minute

func sweepAll(t *testing.T, newStore func(t *testing.T) string) {
	services, after := startSweepStub(t), startSweepStub(t)
	first := sweeper{t: t, store: newStore(t), services: services, after: after, atOnce: new(atomic.Int64)}
	whole, err := first.child(sweepJob{Event: "whole"}, services)
	if err != nil {
		t.Fatal(err)
	}
	want := whole.report
	if len(want.Runs) != 2 {
		t.Fatalf("want two runs, have %d", len(want.Runs))
	}
	var next atomic.Int64
	var mu sync.Mutex // guards died
	died := map[string]int{}
	var lanes sync.WaitGroup // they mostly wait, so more than there are processors
	for range sweepLanes {
		s := sweeper{t: t, store: newStore(t), services: services, after: after, atOnce: first.atOnce}
		lanes.Go(func() {
			for {
				// What goes on at once does not always happen in the same order,
				// nor as often: some more points than the whole run had.
				n := int(next.Add(1)) - 1
				job := sweepJob{At: n + 1, After: true, Event: fmt.Sprintf("e%d", n)}
				if *everyMoment {
					job.At, job.After = n/2+1, n%2 == 1
				}
				if job.At > want.IOs+2 {
					return
				}
				at, err := s.sweep(job, want)
				if err != nil {
					t.Errorf("%s: %v", job, err)
					return
				}
				mu.Lock()
				died[at]++
				mu.Unlock()
			}
		})
	}
	lanes.Wait()
	// On a busy machine the order changes so much that one may have been missed.
	for _, op := range []string{"join", "beat", "accept", "claim", "commit", "call"} {
		for i, when := range []string{"before ", "after "} {
			if died[when+op] > 0 {
				continue
			}
			at, err := first.sweep(sweepJob{Of: op, At: 1, After: i == 1, Event: when + op}, want)
			if err != nil || at != when+op {
				t.Errorf("want a process die %s the first %s, have %s, %v", when, op, at, err)
			}
		}
	}
	// On a machine that is busy for longer than the node decides such a run, it is accepted like others.
	for i := 0; first.atOnce.Load() == 0; i++ {
		job := sweepJob{Of: "accept", At: 1, After: true, Event: fmt.Sprintf("computed%d", i)}
		if _, err := first.sweep(job, want); err != nil || i == 20 {
			t.Fatalf("%s: want a run that only computes durable with its end, have none of %d, %v", job, i+1, err)
		}
	}
	t.Logf("died %v; %d runs were durable with their ends at once", died, first.atOnce.Load())
}

func startSweepStub(t *testing.T) *stub.Server {
	t.Helper()
	spec, found := stub.Parse([]diag.File{{Name: "sweep.stub.yaml", Data: []byte(sweepStub)}})
	if spec == nil {
		t.Fatalf("%+v", found)
	}
	server, err := stub.Start(context.Background(), spec, stub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server
}

// A sweeper has processes killed, on one store.
type sweeper struct {
	t     *testing.T
	store string

	// What processes call that are to die, and what those call that go on after them. A
	// call that was on its way when its process died may arrive at any time afterwards: by
	// the time alone, it would be taken for one of the process that goes on.
	services, after *stub.Server

	// atOnce counts the processes that died right behind the acceptance of the event that is only computed, and had its end then.
	atOnce *atomic.Int64
}

// A lifetime is what a process said.
type lifetime struct {
	died   string // when, and at what I/O; empty when it came to its end
	report sweepReport
}

// child runs a process that calls some services.
func (s *sweeper) child(job sweepJob, services *stub.Server) (l lifetime, err error) {
	job.Store, job.Service = s.store, services.URLs()["svc"]
	env, err := json.Marshal(job)
	if err != nil {
		return l, err
	}
	ctx, cancel := patience.Context(context.Background(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestCrashAtEveryIO$")
	cmd.Env = append(os.Environ(), sweepEnv+"="+string(env))
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) { // however long a report is
		if text, ok := strings.CutPrefix(line, sweepDied); ok {
			l.died = strings.TrimSuffix(text, "\n")
		}
		if text, ok := strings.CutPrefix(line, sweepDone); ok {
			if err := json.Unmarshal([]byte(text), &l.report); err != nil {
				return l, fmt.Errorf("report: %w\n%s", err, out)
			}
		}
	}
	if l.died == "" && (err != nil || l.report.IOs == 0) {
		return l, fmt.Errorf("the process ended by itself: %w\n%s", err, out)
	}
	return l, nil
}

// sweep has a process killed at one point and another one go on, and checks all.
func (s *sweeper) sweep(job sweepJob, want sweepReport) (died string, err error) {
	first, err := s.child(job, s.services)
	if err != nil || first.died == "" {
		return "never", err
	}
	durable, totals, dead, err := s.durable(job)
	if err != nil {
		return "", fmt.Errorf("what is durable: %w", err)
	}
	if job.After && len(totals) > 0 && len(durable) == 0 && totals[0].Status == want.Totals.Status {
		s.atOnce.Add(1)
	}
	again := job
	again.At = 0
	second, err := s.goOn(again, dead)
	if err != nil {
		return "", fmt.Errorf("the process that goes on: %w", err)
	}
	s.compare(job, want, second.report)
	s.checkHistory(job, second.report, durable)
	if _, totals, _, err = s.durable(job); len(totals) != 1 {
		s.t.Errorf("%s: want one run that only computes, have %d", job, len(totals))
	}
	return first.died, err
}

// durable reads what is durable of a job's runs after the death, in the order of their acceptance,
// and which nodes are dead then. The run that only computes is apart. One whose Join was still on its way is not among them; but it can have no runs.
func (s *sweeper) durable(job sweepJob) (views, totals []checkpoint.RunView, dead []int64, err error) {
	ctx := context.Background()
	db, err := openSweepStore(ctx, s.store)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	list := func(f store.RunFilter) (views []checkpoint.RunView) {
		f.Limit = 10
		found, _, listed := db.Runs.List(ctx, f)
		err = errors.Join(err, listed)
		for _, r := range slices.Backward(found) {
			views = append(views, records.View(r))
		}
		return views
	}
	views = list(store.RunFilter{Flow: "order", Key: job.Event})
	totals = list(store.RunFilter{Key: job.totals().ID})
	if err != nil {
		return nil, nil, nil, err
	}
	nodes, err := db.Ledger.Nodes(ctx)
	for _, n := range nodes {
		if n.Alive {
			dead = append(dead, n.Node)
		}
	}
	return views, totals, dead, err
}

// goOn runs a process after the death of another one.
func (s *sweeper) goOn(job sweepJob, dead []int64) (l lifetime, err error) {
	ctx, stop := context.WithCancel(context.Background())
	var expired error
	var expiring sync.WaitGroup
	if strings.HasPrefix(s.store, "postgres") { // a file is taken over when it is opened
		expiring.Go(func() { expired = s.expire(ctx, dead) })
	}
	l, err = s.child(job, s.after)
	stop()
	expiring.Wait()
	return l, errors.Join(err, expired)
}

const endLeases = `update leases set lease_until = clock_timestamp()
	where node = any ($1::bigint[]) and lease_until > clock_timestamp()`

// expire ends the leases of dead nodes until ctx ends: again and again, since the server may
// still be about to do what a process has asked for right before its death, such as a beat.
func (s *sweeper) expire(ctx context.Context, nodes []int64) error {
	conn, err := pgx.Connect(context.WithoutCancel(ctx), s.store)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := conn.Exec(context.WithoutCancel(ctx), endLeases, nodes); err != nil {
			return fmt.Errorf("end the leases of the dead: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// compare compares the end with that of a run without a crash.
func (s *sweeper) compare(job sweepJob, want, have sweepReport) {
	s.t.Helper()
	if len(have.Runs) != len(want.Runs) {
		s.t.Errorf("%s: want %d runs, have %+v", job, len(want.Runs), have.Runs)
		return
	}
	if have.Entity.State != "done" {
		s.t.Errorf("%s: want the order done, have it %s", job, have.Entity.State)
	}
	runs := append(slices.Clone(have.Runs), have.Totals)
	for i, w := range append(slices.Clone(want.Runs), want.Totals) {
		h := runs[i]
		if h.Pipeline != w.Pipeline || h.Status != w.Status || h.Generation != 0 {
			s.t.Errorf("%s: want %s %s, have %s %s: %s", job, w.Pipeline, w.Status, h.Pipeline, h.Status, h.Error)
		}
		if d := cmp.Diff(w.SharedState, h.SharedState); d != "" {
			s.t.Errorf("%s: state of %s (- whole, + crashed):\n%s", job, w.Pipeline, d)
		}
		if d := cmp.Diff(pathOutcomes(w), pathOutcomes(h)); d != "" {
			s.t.Errorf("%s: outcomes of %s (- whole, + crashed):\n%s", job, w.Pipeline, d)
		}
	}
}

func pathOutcomes(v checkpoint.RunView) map[string]string {
	out := map[string]string{}
	for _, h := range v.Handlers {
		out[h.Path] = h.Outcome
	}
	return out
}

func sweepDigest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// checkHistory tells the story of a job from the calls that the services saw of the
// process that died and of the one that went on, and from what was durable in between.
func (s *sweeper) checkHistory(job sweepJob, end sweepReport, durable []checkpoint.RunView) {
	s.t.Helper()
	var h enginetest.History
	for _, r := range end.Runs {
		h.Accepted(r.ID, job.Event)
	}
	before, after := s.services.Record().Calls, s.after.Record().Calls
	running := 0 // the first run that has not ended
	tell := func(calls []stub.Call) {
		for _, c := range calls {
			i := slices.IndexFunc(end.Runs, func(r checkpoint.RunView) bool { return r.ID == c.Run })
			if i < 0 {
				continue // another job's
			}
			for ; running < i; running++ {
				h.Ended(end.Runs[running].ID)
			}
			// Of the event that was submitted and not of the run, which a restore would make anew.
			of := sweepDigest("event", end.Runs[0].Event.Source, end.Runs[0].Event.ID)
			if i > 0 {
				of = sweepDigest(of, "begin/second/tell", "emit", "0")
			}
			if c.Key != sweepDigest(of, sweepWays[c.Handler]+c.Handler, "0") {
				s.t.Errorf("%s: %s was called with the key %s", job, c.Handler, c.Key)
			}
			h.Called(c.Run, c.Handler, sweepStages[c.Handler], c.Key)
		}
	}
	tell(before)
	h.Fault()
	for _, r := range durable {
		for _, handler := range r.Handlers {
			if handler.Finished != nil {
				h.Decided(r.ID, handler.Path)
			}
		}
	}
	tell(after)
	for ; running < len(end.Runs); running++ {
		h.Ended(end.Runs[running].ID)
	}
	for _, problem := range h.Check() {
		s.t.Errorf("%s: %s", job, problem)
	}
	for path := range sweepStages {
		if !slices.ContainsFunc(slices.Concat(before, after), func(c stub.Call) bool {
			return c.Handler == path && slices.ContainsFunc(end.Runs, func(r checkpoint.RunView) bool { return r.ID == c.Run })
		}) {
			s.t.Errorf("%s: %s was never called", job, path)
		}
	}
}

func openSweepStore(ctx context.Context, dsn string) (store.Store, error) {
	if strings.HasPrefix(dsn, "postgres") {
		db, err := postgres.Open(ctx, dsn, postgres.Options{Migrate: true, Unsafe: true})
		if err != nil {
			return store.Store{}, err
		}
		return db.Ports(), nil
	}
	db, err := sqlite.Open(ctx, dsn, sqlite.Options{Migrate: true, Fast: true})
	if err != nil {
		return store.Store{}, err
	}
	return db.Ports(), nil
}

// sweepUntilKilled is the process: it hands the event in, as a client that had no
// answer does again, and waits until all is done, unless it dies first.
func sweepUntilKilled(t *testing.T, text string) {
	var job sweepJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	store, err := openSweepStore(ctx, job.Store)
	if err != nil {
		t.Fatal(err)
	}
	d := &deadly{Store: store, of: job.Of, at: job.At, after: job.After}
	service, err := url.Parse(job.Service)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(d.between(httputil.NewSingleHostReverseProxy(service)))
	defer proxy.Close()

	types := addons.Types()
	services := map[string]string{"svc": proxy.URL}
	bundle, found := dsl.Load([]diag.File{{Name: "sweep.yaml", Data: []byte(sweepFlow)}}, dsl.Options{Types: types, ServiceURLs: services})
	if bundle == nil {
		t.Fatalf("%+v", found)
	}
	e, err := engine.New(engine.Options{
		Store: d.ports(), Types: addons.HandlerTypes(), Bundle: bundle, ServiceURLs: services, Name: "swept", Lease: sweepLease,
	})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- e.Run(running) }()
	report := sweepToTheEnd(ctx, t, e, job)
	stop()
	<-ended // with an error when the node could not leave in time, which only delays the next one
	report.IOs = int(d.count.Load())
	out, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("\n" + sweepDone + string(out))
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// totals is the event that is only computed.
func (j sweepJob) totals() model.Event {
	return model.Event{ID: j.Event + "-totals", Source: "sweep", Type: "totals", Payload: map[string]any{"a": 1, "b": 2}}
}

// sweepToTheEnd hands the events in and waits for all runs.
func sweepToTheEnd(ctx context.Context, t *testing.T, e *engine.Engine, job sweepJob) sweepReport {
	over := patience.Over(2 * time.Minute)
	for e.Healthy(ctx) != nil && !over() {
		time.Sleep(time.Millisecond)
	}
	var totals string // its run
	for _, ev := range []model.Event{job.totals(), {ID: job.Event, Source: "sweep", Type: "begin", Payload: map[string]any{"id": job.Event}}} {
		out, err := e.Submit(ctx, []intake.Submission{{Event: ev}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		if totals == "" {
			totals = out[0].Receipt.Run
		}
	}
	for !over() {
		entity, err := e.Entity(ctx, "order", job.Event)
		if err != nil {
			t.Fatal(err)
		}
		if len(entity.Runs) >= 2 && entity.Waiting == 0 {
			// The parts of an entity may be read one after another.
			if entity, err = e.Entity(ctx, "order", job.Event); err != nil {
				t.Fatal(err)
			}
			report := sweepReport{Entity: entity, Totals: endOfTotals(ctx, t, e, totals, over)}
			for _, r := range slices.Backward(entity.Runs) {
				whole, err := e.RunByID(ctx, r.ID)
				if err != nil {
					t.Fatal(err)
				}
				report.Runs = append(report.Runs, whole)
			}
			return report
		}
		time.Sleep(2 * time.Millisecond)
	}
	entity, err := e.Entity(ctx, "order", job.Event)
	t.Fatalf("the event does not come to its end: %+v %v", entity, err)
	panic("unreachable")
}

// endOfTotals waits for the end of the run that only computes, which may have been accepted like others.
func endOfTotals(ctx context.Context, t *testing.T, e *engine.Engine, run string, over func() bool) checkpoint.RunView {
	for {
		v, err := e.RunByID(ctx, run)
		if err != nil || over() {
			t.Fatalf("the run that only computes does not come to its end: %+v %v", v, err)
		}
		if v.Finished != nil {
			return v
		}
		time.Sleep(2 * time.Millisecond)
	}
}
