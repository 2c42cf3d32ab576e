package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/guard"
	"procaas/engine/store"
	"procaas/handlers/queue"
	queueremote "procaas/handlers/queue/remote"
)

// wrongBy is by how much the clocks of all processes of the test are behind that of the
// database.
const wrongBy = 7 * time.Minute

// TestQueueTorture puts tasks of all kinds into the queue of two nodes, floods of
// duplicates among them, and lets workers of two sorts do them: programs with the Go
// package and programs that only know HTTP. All of them are killed, paused beyond their
// leases and cut off, PostgreSQL crashes, some tasks always fail, some bring their
// workers down, and the clocks of the processes are wrong by minutes. What came of it is
// looked at from outside; see [queueHistory].
func TestQueueTorture(t *testing.T) {
	t.Parallel()
	seed := drawSeed(t)
	harmTime := *tortureTime / 2 // its short version leaves some of the time to others
	long := harmTime > time.Minute
	db := enginetest.OwnPostgres(t)
	dsn := wrongClock(t, db)
	w := newWitness(t, seed)
	var nodes []*victim
	for i := range 2 {
		v := newVictim(t, i+1, seed, &world{}, db)
		v.files, v.world = "../../testdata/torture-queue", w.url
		var err error
		if v.store, err = v.proxy.Through(dsn); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, v)
		v.start(t.Context())
	}
	store, err := queue.Open(t.Context(), dsn, queue.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	p := &taskPutter{t: t, nodes: nodes, http: &http.Client{Timeout: 10 * time.Second}}
	p.orderly()

	life, goodbye := context.WithCancel(t.Context())
	defer goodbye()
	harm, cancel := context.WithTimeout(t.Context(), harmTime)
	defer cancel()
	var hands []*hand
	var working, faults, senders sync.WaitGroup
	for i, kind := range []string{"compiled", "compiled", "outside", "outside"} {
		h := newHand(t, kind, i+11, seed, db.Addr(), dsn, nodes[0].listen+","+nodes[1].listen, w.server.URL)
		hands = append(hands, h)
		working.Go(func() { h.supervise(life) })
		faults.Go(func() { h.torture(harm) })
	}
	restarts := 0
	faults.Go(func() { restarts = tortureServer(harm, t, db, seed, harmTime/6) })
	for _, v := range nodes {
		faults.Go(func() { v.torture(harm) })
	}
	// Any machine has enough to look at: senders put tasks until then.
	sending, enough := context.WithCancel(t.Context())
	defer enough()
	for i, send := range p.senders(long) {
		senders.Go(func() { send(sending, rand.New(rand.NewPCG(seed, uint64(i)+1000))) })
	}
	orders := p.claimOrderly(harm)
	faults.Wait()
	for _, h := range hands {
		if h.proxy != nil {
			h.proxy.Hold(0)
		}
	}
	for _, v := range nodes {
		if v.proxy.Hold(0); v.process == nil {
			v.start(t.Context())
		}
	}
	eventually(t, "enough attempts to look at", func() bool {
		doings, _ := w.seen()
		return len(doings) >= 10*int(harmTime.Seconds())
	})
	enough()
	senders.Wait()
	w.calmDown()
	p.last()
	h := queueHistory{wrongBy: wrongBy, puts: p.puts, orders: orders, poisonous: p.poisonous}
	h.settle(t, store, p)
	goodbye()
	working.Wait()
	h.doings, h.jobs = w.seen()
	for _, v := range nodes {
		v.end(syscall.SIGTERM)
		t.Logf("node %d: %v, %d answers to commits lost", v.number, v.faults, v.proxy.Lost())
	}
	for _, v := range nodes {
		noPanics(t, v.log.Name())
	}
	for _, one := range hands {
		noPanics(t, one.log.Name())
		t.Logf("hand %d, %s: %v, %d starts", one.number, one.kind, one.faults, one.starts)
	}
	wrong := h.violations()
	t.Logf("PostgreSQL was restarted %d times; %s", restarts, h.summary())
	if restarts == 0 {
		t.Error("PostgreSQL was never restarted: the test shows nothing")
	}
	failWith(t, wrong)
}

// noPanics looks for a crash that nobody has asked for.
func noPanics(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, mark := range []string{"\npanic: ", "\nfatal error: ", "WARNING: DATA RACE"} {
		if i := bytes.Index(data, []byte(mark)); i >= 0 {
			t.Errorf("a process has crashed; its log says\n%s", data[i:min(len(data), i+3000)])
		}
	}
}

// wrongClock makes a schema in which the time is another one, and returns the URL of the
// database with it: as if the clocks of all its clients were wrong.
func wrongClock(t *testing.T, db *enginetest.Cluster) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	sql := "create schema torture;"
	for f, kind := range map[string]string{"now": "stable", "clock_timestamp": "volatile"} {
		sql += fmt.Sprintf("create function torture.%s() returns timestamptz language sql %s as $$ select pg_catalog.%s() + interval '%d "+
			"seconds' $$;",
			f, kind, f, int(wrongBy.Seconds()))
	}
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
	return db.URL + "&search_path=torture,pg_catalog"
}

// A taskBody is the payload of all tasks.
type taskBody struct {
	Name    string `json:"name,omitempty"` // the unique name of a task, where its type has names
	NS      []int  `json:"ns"`             // the numbers of the puts that are in it
	Pad     string `json:"pad,omitempty"`
	Crashes int    `json:"crashes,omitempty"` // how often it brings its worker down
}

// A taskPut is what a sender knows of a task.
type taskPut struct {
	kind, name string
	n          int
	sent       time.Time
	id         string // empty: no answer came, it may be in the queue or not
	outcome    string
	last       bool // nothing is put under its name afterwards
}

// A taskPutter puts tasks.
type taskPutter struct {
	t     *testing.T
	nodes []*victim
	http  *http.Client

	mu        sync.Mutex // guards the following
	n         int
	puts      []taskPut
	poisonous map[int]bool // numbers of those that bring down every worker
}

// post calls a node.
func (p *taskPutter) post(r *rand.Rand, path string, body, into any) (status int, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	reply, err := p.http.Post("http://"+p.nodes[r.IntN(len(p.nodes))].listen+path, "application/json", bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	if data, err = io.ReadAll(reply.Body); err != nil {
		return 0, err
	}
	if reply.StatusCode >= 300 {
		return reply.StatusCode, fmt.Errorf("%d %s", reply.StatusCode, data)
	}
	return reply.StatusCode, json.Unmarshal(data, into)
}

// put puts tasks of a type, numbers them, and notes what became of them. It is false
// when that is not known.
func (p *taskPutter) put(r *rand.Rand, kind string, last bool, tasks ...map[string]any) bool {
	puts := make([]taskPut, len(tasks))
	p.mu.Lock()
	for i, one := range tasks {
		p.n++
		body := one["payload"].(taskBody)
		body.NS = []int{p.n}
		one["payload"] = body
		puts[i] = taskPut{kind: kind, name: body.Name, n: p.n, sent: time.Now(), last: last}
		if body.Crashes > guard.MaxLost {
			p.poisonous[p.n] = true
		}
	}
	p.mu.Unlock()
	var reply queueremote.TaskReceipts
	var refused *net.OpError
	status, err := p.post(r, "/v1/queues/"+kind+"/tasks", tasks, &reply)
	if err != nil && status >= 400 && status < 500 {
		p.t.Errorf("tasks of %s are refused: %v", kind, err)
	}
	if errors.As(err, &refused) && refused.Op == "dial" {
		return false // no node has heard of them
	}
	if err == nil && len(reply.Tasks) != len(tasks) {
		p.t.Errorf("%d tasks were put, and %d answered", len(tasks), len(reply.Tasks))
	}
	for i, one := range reply.Tasks {
		puts[i].id, puts[i].outcome = one.ID, one.Outcome
		if one.Error != "" {
			p.t.Errorf("a task of %s is refused: %s", kind, one.Error)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.puts = append(p.puts, puts...)
	return err == nil
}

// A flood is how many names a type of duplicates has, and how many come at once.
var floods = map[string]int{"keep": 2, "merge": 2, "replace": 3, "rerun": 2}

const floodAtOnce = 20

// senders returns what puts tasks until a time.
func (p *taskPutter) senders(long bool) (all []func(context.Context, *rand.Rand)) {
	p.poisonous = map[int]bool{}
	for _, kind := range []string{"plain", "plain", "keyed", "job"} {
		all = append(all, func(ctx context.Context, r *rand.Rand) {
			for clock.Pause(ctx, between(r, 5*time.Millisecond, 150*time.Millisecond)) {
				p.send(ctx, r, kind, p.some(r, kind)...)
			}
		})
	}
	for kind, names := range floods {
		for name := range names {
			for range map[string]int{"replace": 1}[kind] + 1 {
				all = append(all, func(ctx context.Context, r *rand.Rand) { p.flood(ctx, r, kind, fmt.Sprint("u", name)) })
			}
		}
	}
	return append(all, func(ctx context.Context, r *rand.Rand) { p.poison(ctx, r, long) })
}

// some makes a few tasks that differ.
func (p *taskPutter) some(r *rand.Rand, kind string) []map[string]any {
	tasks := make([]map[string]any, 1+r.IntN(8))
	for i := range tasks {
		one := map[string]any{"payload": taskBody{}, "priority": r.IntN(3), "delay_tolerance": r.IntN(5)}
		switch r.IntN(8) {
		case 0:
			one["delay"] = r.Float64()
		case 1:
			one["payload"] = taskBody{Pad: strings.Repeat("x", 1+r.IntN(20_000))}
		}
		if kind == "keyed" || r.IntN(2) == 0 {
			one["key"] = fmt.Sprint("k", r.IntN(6))
		}
		tasks[i] = one
	}
	return tasks
}

// flood puts duplicates under one name.
func (p *taskPutter) flood(ctx context.Context, r *rand.Rand, kind, name string) {
	for clock.Pause(ctx, between(r, time.Millisecond, 40*time.Millisecond)) {
		tasks := make([]map[string]any, 1+r.IntN(floodAtOnce))
		for i := range tasks {
			tasks[i] = map[string]any{"payload": taskBody{Name: name}}
		}
		p.send(ctx, r, kind, tasks...)
	}
}

// awayPause is for how long a sender waits after a put without an answer. While the store
// is away, thousands of them would show no more than a few, and cost the time of those
// whose work is looked at.
const awayPause = 60 * time.Millisecond

// send is put for who goes on putting.
func (p *taskPutter) send(ctx context.Context, r *rand.Rand, kind string, tasks ...map[string]any) {
	if !p.put(r, kind, false, tasks...) {
		clock.Pause(ctx, awayPause)
	}
}

// poison puts what does harm: tasks that fail, that kill their worker, and that are too
// large to be taken.
func (p *taskPutter) poison(ctx context.Context, r *rand.Rand, long bool) {
	large := map[string]any{"payload": taskBody{Pad: strings.Repeat("x", store.MaxTaskPayload+1)}}
	for i := 0; clock.Pause(ctx, between(r, 100*time.Millisecond, 500*time.Millisecond)); i++ {
		p.send(ctx, r, "fails", map[string]any{"payload": taskBody{}})
		p.put(r, "plain", false, map[string]any{"payload": taskBody{Pad: strings.Repeat("y", 900_000)}})
		if status, err := p.post(r, "/v1/queues/plain/tasks", large, &struct{}{}); err == nil || status >= 400 && status < 500 &&
			status != http.StatusRequestEntityTooLarge {
			p.t.Errorf("a payload that is too large: have %d, %v, want 413", status, err)
		}
		if i%8 == 0 {
			crashes := 1 + r.IntN(2)
			if long && i%40 == 0 {
				crashes = 1000
			}
			p.put(r, "crash", false, map[string]any{"payload": taskBody{Crashes: crashes}})
		}
	}
}

// last puts one more task under each name that takes the place of others.
func (p *taskPutter) last() {
	r := rand.New(rand.NewPCG(1, 1))
	for name := range floods["replace"] {
		for !p.put(r, "replace", true, map[string]any{"payload": taskBody{Name: fmt.Sprint("u", name)}}) {
			clock.Pause(p.t.Context(), 50*time.Millisecond)
		}
	}
}

// orderly puts tasks whose order is looked at, before anything goes wrong.
func (p *taskPutter) orderly() {
	r := rand.New(rand.NewPCG(2, 2))
	for range 10 {
		var tasks []map[string]any
		for range 30 {
			tasks = append(tasks, map[string]any{"payload": taskBody{}, "priority": r.IntN(4), "delay_tolerance": 60 * r.IntN(50)})
		}
		if !p.put(r, "order", false, tasks...) {
			p.t.Fatal("tasks cannot be put, though all is well")
		}
	}
}

// An orderedTask is one of those, as a claim returned it.
type orderedTask struct {
	ID       string
	Priority int
	Deadline time.Time
	Receipt  string
}

func (o orderedTask) first() bool { return strings.Split(o.Receipt, ".")[1] == "1" }

// claimOrderly claims and completes these tasks one batch after the other, until ctx
// ends, or without one until none is left. It returns what was taken for the first
// time.
func (p *taskPutter) claimOrderly(ctx context.Context) (out []orderedTask) {
	r := rand.New(rand.NewPCG(3, 3))
	claim := map[string]any{"worker": "orderly", "types": []any{map[string]any{"type": "order", "limit": 5}}, "lease": 1}
	for ctx == nil || clock.Pause(ctx, between(r, 10*time.Millisecond, 60*time.Millisecond)) {
		var got struct{ Items []orderedTask }
		if _, err := p.post(r, "/v1/queues/claim", claim, &got); err != nil {
			clock.Pause(p.t.Context(), 20*time.Millisecond)
			continue
		}
		var receipts []string
		for _, one := range got.Items {
			if receipts = append(receipts, one.Receipt); one.first() {
				out = append(out, one)
			}
		}
		if len(receipts) == 0 && ctx == nil {
			return out
		}
		if len(receipts) > 0 {
			// What is not heard comes again.
			_, _ = p.post(r, "/v1/queues/complete", map[string]any{"receipts": receipts}, &struct{}{})
		}
	}
	return out
}

// settle waits until no task is left but those that have ended, and lists these.
func (h *queueHistory) settle(t *testing.T, db *queue.Store, p *taskPutter) {
	t.Helper()
	ctx, cancel := patience.Context(t.Context(), 4*time.Minute)
	defer cancel()
	for {
		rest, err := db.PeekTasks(ctx, queue.Filter{Limit: 5})
		if err == nil && len(rest) == 0 {
			break
		}
		h.orders = append(h.orders, p.claimOrderly(nil)...) //nolint:staticcheck // nil: once
		if !clock.Pause(ctx, 100*time.Millisecond) {
			t.Errorf("tasks are left minutes after the last fault: %+v, %v", rest, errors.Join(err, ctx.Err()))
			break
		}
	}
	var err error
	if h.completed, err = db.PeekTasks(t.Context(), queue.Filter{State: store.TaskCompleted}); err != nil {
		t.Fatal(err)
	}
	if h.dead, err = db.PeekTasks(t.Context(), queue.Filter{State: store.TaskFailed}); err != nil {
		t.Fatal(err)
	}
}
