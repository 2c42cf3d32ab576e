package balancer_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/memory"
	"procaas/engine/store"
	"procaas/handlers/balancer"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/language"
)

// A rig is a cluster of workers in this process, and the documents of its balancer.
type rig struct {
	t       *testing.T
	store   *memory.Store
	bundle  *tree.Bundle
	workers []*fakeWorker
	servers []*httptest.Server
	memory  engine.Memory
	node    int64
	now     time.Time
	yaml    string
}

// A fakeWorker answers healthchecks as the test says.
type fakeWorker struct {
	mu     sync.Mutex // guards the following
	report string     // of the extended healthcheck; empty for 404
	mute   bool       // answers nothing at all
	misses int        // so many times yet
	asked  int
}

func (w *fakeWorker) say(report string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report, w.mute = report, report == "mute"
}

func (w *fakeWorker) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if w.misses > 0 {
		w.misses--
		panic(http.ErrAbortHandler)
	}
	switch {
	case w.mute:
		panic(http.ErrAbortHandler)
	case r.URL.Path == "/healthcheck" && w.report == "":
		http.NotFound(out, r)
	case r.URL.Path == "/healthcheck":
		fmt.Fprint(out, w.report)
	case r.URL.Path != "/ping":
		out.WriteHeader(http.StatusInternalServerError)
	}
}

const healthy = `{"requests": 20, "drops": 0, "busy": 0.3, "age_s": 1000, "window_s": 2, "partitions": {}}`

// stalls lets the machine pause for a while: a worker that is asked late is not down.
const stalls = "    healthcheck: {timeout: 1m}\n"

// newRig makes a cluster of n workers and 12 partitions; more is YAML of the cluster.
func newRig(t *testing.T, n int, more string) *rig {
	r := &rig{t: t, store: memory.New(nil), now: time.UnixMilli(1_700_000_000_000)}
	yaml := "clusters:\n  - id: c\n    partitions: 12\n    step: 2s\n" + stalls + more + "    workers:\n"
	for i := range n {
		w := &fakeWorker{report: healthy}
		s := httptest.NewServer(w)
		t.Cleanup(s.Close)
		r.workers, r.servers = append(r.workers, w), append(r.servers, s)
		yaml += fmt.Sprintf("      - {id: w%d, url: %q, zone: z%d}\n", i+1, s.URL, i%3)
	}
	r.load(yaml)
	r.node = r.join()
	return r
}

func (r *rig) load(yaml string) {
	r.t.Helper()
	r.yaml = yaml
	r.bundle = enginetest.LoadIn(r.t, tree.NewLanguage(language.Section()), yaml, balancer.Types()...)
}

func (r *rig) join() int64 {
	r.t.Helper()
	node, err := r.store.Join(r.t.Context(), "n", time.Hour)
	if err != nil {
		r.t.Fatal(err)
	}
	return node
}

func (r *rig) call() *engine.Call {
	return &engine.Call{
		Now: r.now, Bundle: r.bundle, Node: r.node, Documents: r.store, Memory: &r.memory,
		Log: slog.New(slog.DiscardHandler), Hide: func(text string) string { return text },
	}
}

func (r *rig) handle(h engine.Handler) map[string]any {
	r.t.Helper()
	result, err := h.Handle(r.t.Context(), r.call())
	if err != nil {
		r.t.Fatalf("%T: %v", h, err)
	}
	return result.Response.(map[string]any)
}

// tick observes, decides and applies, some time after the last tick.
func (r *rig) tick() (decision, applied map[string]any) {
	r.t.Helper()
	r.now = r.now.Add(2 * time.Second)
	seen := r.handle(&balancer.Observe{Cluster: "c"})
	decision = r.handle(&balancer.Decide{Cluster: "c", Observation: seen})
	return decision, r.handle(&balancer.Apply{Cluster: "c", Observation: seen, Decision: decision})
}

func (r *rig) assignment() clusters.Assignment {
	r.t.Helper()
	a, err := clusters.ReadAssignment(r.t.Context(), r.store, "c")
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// count returns how many partitions each worker has.
func (r *rig) count() map[string]int {
	out := map[string]int{}
	a := r.assignment()
	for p := range a.Owners {
		w, _ := a.Owner(p)
		out[w.ID]++
	}
	return out
}

// lever writes the levers of the cluster.
func (r *rig) levers(l clusters.Levers) {
	r.t.Helper()
	value, err := json.Marshal(l)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.store.WriteDocuments(r.t.Context(), 0, []store.DocumentWrite{
		{Kind: clusters.DocumentLevers, Name: "c", Version: store.AnyVersion, Value: value},
	}, nil); err != nil {
		r.t.Fatal(err)
	}
}

func TestFirstTickPlacesAllPartitions(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4, "")
	r.tick()
	a := r.assignment()
	if a.Version != 1 || len(a.Owners) != 12 || a.Epoch != r.node {
		t.Fatalf("want version 1 of node %d with 12 partitions, have %+v", r.node, a)
	}
	for id, n := range r.count() {
		if n != 3 {
			t.Errorf("want 3 partitions on each worker, %s has %d", id, n)
		}
	}
	for range 10 {
		if _, applied := r.tick(); applied["moved"] != 0 {
			t.Fatalf("want no moves in an even cluster, have %v", applied)
		}
	}
	if v := r.assignment().Version; v != 1 {
		t.Errorf("want version 1 still, have %d", v)
	}
}

func TestDeadWorkerIsLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4, "")
	r.tick()
	r.workers[1].say("mute")
	for range 8 {
		r.tick()
	}
	if n := r.count()["w2"]; n != 0 {
		t.Errorf("want nothing on the dead worker, it has %d", n)
	}
	moves, err := clusters.ReadMoves(t.Context(), r.store, "c")
	if err != nil {
		t.Fatal(err)
	}
	last := moves[len(moves)-1]
	if last.From != "w2" || !strings.Contains(last.Reason, "worker w2 is down") {
		t.Errorf("want a reason that names the worker, have %+v", last)
	}
	audit, err := r.store.Audit(t.Context(), store.AuditFilter{Kind: store.AuditCluster, Name: "c", Limit: 10})
	if err != nil || len(audit) < 2 || !strings.Contains(string(audit[0].After), "worker w2 is down") {
		t.Errorf("want the moves audited, have %v, %v", audit, err)
	}
}

// A worker at whose address nothing listens any more has ended: its partitions leave at once.
// One that only does not answer lives perhaps, and keeps them for a while.
func TestWorkerThatHasEndedIsLeftAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4, "")
	r.tick()
	r.workers[1].say("mute")
	if r.tick(); r.count()["w2"] == 0 {
		t.Errorf("a silent worker: want it left after several ticks only, have %v", r.count())
	}
	r.servers[1].Close()
	if r.tick(); r.count()["w2"] != 0 {
		t.Errorf("a worker that has ended: want it left at once, have %v", r.count())
	}
}

// Where reports come seldom, a worker is asked again before it counts as down; one that is known
// to be down is not waited for each time.
func TestSilentWorkersAreAskedAgainWhereReportsAreSeldom(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, "")
	language.ClusterOf(r.bundle, "c").Step = time.Minute
	tick := func() map[string]any {
		r.now = r.now.Add(time.Minute)
		_, applied := r.tick()
		return applied
	}
	tick()
	before := r.count()["w1"]
	r.workers[0].mu.Lock()
	r.workers[0].misses = 2 // the client asks by itself again where a connection was open
	r.workers[0].mu.Unlock()
	if tick(); r.count()["w1"] != before || before == 0 {
		t.Errorf("a lost healthcheck: want %d partitions of w1 left where they are, have %v", before, r.count())
	}
	r.workers[0].say("mute")
	if tick(); r.count()["w1"] != 0 {
		t.Errorf("a dead worker: want it left at once, have %v", r.count())
	}
	r.workers[0].mu.Lock()
	asked := r.workers[0].asked
	r.workers[0].mu.Unlock()
	tick()
	r.workers[0].mu.Lock()
	defer r.workers[0].mu.Unlock()
	if asked = r.workers[0].asked - asked; asked != 1 {
		t.Errorf("a worker that is known to be dead: want it asked once, have %d times", asked)
	}
}

func TestNobodyMovesWhenAllAreDown(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4, "")
	r.tick()
	before := r.assignment()
	for _, w := range r.workers {
		w.say("mute")
	}
	var decision map[string]any
	for range 30 {
		decision, _ = r.tick()
	}
	if after := r.assignment(); !slices.Equal(after.Owners, before.Owners) || after.Version != before.Version {
		t.Errorf("want the assignment kept, have %+v", after)
	}
	if alerts := fmt.Sprint(decision["alerts"]); !strings.Contains(alerts, "no worker answers") {
		t.Errorf("want an alert, have %s", alerts)
	}
}

// Half of the cluster is unreachable: perhaps for the balancer alone.
func TestHalfOfTheClusterIsNotLeftAtOnce(t *testing.T) {
	t.Parallel()
	for _, policy := range balancer.Names() {
		r := newRig(t, 4, "    policy: "+policy+"\n")
		r.tick()
		r.workers[0].say("mute")
		r.workers[2].say("mute")
		for i := range 15 {
			if decision, applied := r.tick(); applied["moved"] != 0 || !strings.Contains(fmt.Sprint(decision["alerts"]), "2 of 4 workers answer") {
				t.Fatalf("%s, tick %d: want no moves and an alert, have %v, %v", policy, i, applied, decision["alerts"])
			}
		}
		most := 0
		for range 60 {
			_, applied := r.tick()
			most = max(most, applied["moved"].(int))
		}
		if n := r.count(); most > 1 || n["w1"]+n["w3"] != 0 {
			t.Errorf("%s: want them left one partition at a time, have %v, %d at once", policy, n, most)
		}
	}
}

func TestLiesAreNotBelieved(t *testing.T) {
	t.Parallel()
	lies := map[string]string{
		`{"requests": -1}`: "requests is -1", `{"drops": 1e300}`: "drops is 1e+300", `{"busy": 7}`: "busy is 7", `{"age_s": -3}`: "age_s is -3",
		`{"requests": NaN}`: "not understood", `[]`: "not understood", `{"partitions": {"12": 1}}`: `no partition "12"`,
		`{"partitions": {"x": 1}}`:  `no partition "x"`,
		`{"partitions": {"3": -1}}`: "partition 3 has -1 requests", `{"window_s": 0}`: "window_s is 0", ``: "404",
	}
	for lie, want := range lies {
		r := newRig(t, 2, "")
		r.tick()
		r.workers[0].say(lie)
		r.now = r.now.Add(2 * time.Second)
		seen := r.handle(&balancer.Observe{Cluster: "c"})
		w := seen["workers"].([]any)[0].(map[string]any)
		if problem := fmt.Sprint(w["problem"]); w["up"] != true || w["requests"] != nil || !strings.Contains(problem, want) {
			t.Errorf("%s: want a living worker that is not believed because of %q, have %v", lie, want, w)
		}
	}
}

func TestWeightsAreRatesOfWhoHoldsThePartition(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, "")
	r.tick()
	a := r.assignment()
	mine, other := slices.Index(a.Owners, 0), slices.Index(a.Owners, 1)
	r.workers[0].say(fmt.Sprintf(`{"requests": 30, "drops": 4, "window_s": 2, "partitions": {"%d": 30, "%d": 1000}}`, mine, other))
	r.now = r.now.Add(2 * time.Second)
	seen := r.handle(&balancer.Observe{Cluster: "c"})
	weights := seen["weights"].([]any)
	if weights[mine] != 15.0 && weights[mine] != 15 || fmt.Sprint(weights[other]) != "0" {
		t.Errorf("want 15 a second for partition %d and nothing for %d, have %v", mine, other, weights)
	}
	if w := seen["workers"].([]any)[0].(map[string]any); fmt.Sprint(w["requests"], w["drops"]) != "15 2" {
		t.Errorf("want 15 requests and 2 drops a second, have %v", w)
	}
}

func TestLeversComeBeforeThePolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4, "")
	r.tick()
	why := clusters.Lever{By: "ann", Reason: "disk is full"}
	pin := why
	pin.Worker = "w3"
	r.levers(clusters.Levers{Banned: map[string]clusters.Lever{"w1": why}, Pins: map[int]clusters.Lever{5: pin}})
	r.tick()
	a := r.assignment()
	if w, _ := a.Owner(5); r.count()["w1"] != 0 || w.ID != "w3" {
		t.Errorf("want nothing on w1 and partition 5 on w3, have %v, %s", r.count(), w.ID)
	}
	moves, err := clusters.ReadMoves(t.Context(), r.store, "c")
	if err != nil || !strings.Contains(fmt.Sprint(moves), "worker w1 is banned: disk is full") {
		t.Errorf("want the reason of the ban, have %v, %v", moves, err)
	}

	r.levers(clusters.Levers{Zones: map[string]clusters.Lever{"z1": why}}) // of w2
	for range 4 {
		r.tick()
	}
	if n := r.count(); n["w2"] != 0 {
		t.Errorf("want w2 drained, have %v", n)
	}

	for _, l := range []clusters.Levers{{Frozen: &why}, {DryRun: &why}} {
		l.Banned = map[string]clusters.Lever{"w3": why}
		r.levers(l)
		version := r.assignment().Version
		decision, _ := r.tick()
		if v := r.assignment().Version; v != version {
			t.Errorf("want nothing moved, version went from %d to %d", version, v)
		}
		if would := decision["would"]; (would != nil) != (l.DryRun != nil) {
			t.Errorf("want moves told by a dry run only, have %v", would)
		}
	}

	ended := why
	ended.Until = r.now.Add(-time.Second)
	r.levers(clusters.Levers{Banned: map[string]clusters.Lever{"w3": ended}})
	if decision, _ := r.tick(); decision["banned"] != nil {
		t.Errorf("want the ban over, have %v", decision["banned"])
	}
}

// Two balancers know of the same observation, or one of them was away: one writes.
func TestSecondBalancerIsFenced(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4, "")
	r.tick()
	r.workers[0].say(`{"draining": true, "partitions": {}}`)
	r.now = r.now.Add(2 * time.Second)
	seen := r.handle(&balancer.Observe{Cluster: "c"})
	decision := r.handle(&balancer.Decide{Cluster: "c", Observation: seen})
	if len(decision["moves"].([]any)) == 0 {
		t.Fatalf("want moves off a draining worker, have %v", decision)
	}
	late := &balancer.Apply{Cluster: "c", Observation: seen, Decision: decision}

	// Another node takes over while this one is paused.
	paused := r.node
	if err := r.store.Leave(t.Context(), paused, nil); err != nil {
		t.Fatal(err)
	}
	c := r.call()
	if _, err := late.Handle(t.Context(), c); !errors.Is(err, store.ErrFenced) {
		t.Errorf("want the paused node fenced, have %v", err)
	}
	r.node, r.memory = r.join(), engine.Memory{}
	r.tick()
	after := r.assignment()
	if after.Epoch <= paused || after.Version != 2 {
		t.Fatalf("want version 2 by a later node than %d, have %d by %d", paused, after.Version, after.Epoch)
	}
	// Even with the right to write, what was decided from an older version is void.
	applied := r.handle(late)
	if v := r.assignment().Version; applied["moved"] != 0 || applied["reason"] == nil || v != 2 {
		t.Errorf("want the late decision refused, have %v and version %d", applied, v)
	}
}

func TestApplyingTwiceMovesOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4, "")
	r.tick()
	r.workers[0].say(`{"draining": true, "partitions": {}}`)
	r.now = r.now.Add(2 * time.Second)
	seen := r.handle(&balancer.Observe{Cluster: "c"})
	decision := r.handle(&balancer.Decide{Cluster: "c", Observation: seen})
	apply := &balancer.Apply{Cluster: "c", Observation: seen, Decision: decision}
	first, second := r.handle(apply), r.handle(apply)
	if fmt.Sprint(first) != fmt.Sprint(second) || r.assignment().Version != 2 {
		t.Errorf("want the same answer to both and version 2, have %v, %v, version %d", first, second, r.assignment().Version)
	}
}

// A node that knows nothing decides as one does that was there all the time.
func TestTakeOverLearnsFromObservations(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4, "")
	for i := range 40 {
		for w, worker := range r.workers {
			counts := map[string]float64{}
			for p, owner := range r.assignment().Owners {
				if owner == w {
					counts[fmt.Sprint(p)] = float64(10 + (p*7+i)%13)
				}
			}
			report, err := json.Marshal(map[string]any{
				"requests": 100 + w, "drops": 20 * ((w + 1) % 2), "busy": 0.9, "age_s": 1000 + 2*i, "window_s": 2, "partitions": counts,
			})
			if err != nil {
				t.Fatal(err)
			}
			worker.say(string(report))
		}
		r.tick()
	}
	r.now = r.now.Add(2 * time.Second)
	seen := r.handle(&balancer.Observe{Cluster: "c"})
	known := r.handle(&balancer.Decide{Cluster: "c", Observation: seen})
	r.memory = engine.Memory{}
	anew := r.handle(&balancer.Decide{Cluster: "c", Observation: seen})
	if fmt.Sprint(known) != fmt.Sprint(anew) {
		t.Errorf("want the same decision, have\n%v\n%v", known, anew)
	}
}

func TestWorkersAreDiscovered(t *testing.T) {
	t.Parallel()
	first, second := httptest.NewServer(&fakeWorker{report: healthy}), httptest.NewServer(&fakeWorker{report: healthy})
	t.Cleanup(first.Close)
	t.Cleanup(second.Close)
	var mu sync.Mutex
	reply := fmt.Sprintf(`{"workers": [{"id": "w1", "url": %q}]}`, first.URL)
	answer := func(text string) { mu.Lock(); defer mu.Unlock(); reply = text }
	directory := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprint(out, reply)
	}))
	t.Cleanup(directory.Close)
	r := newRig(t, 1, "")
	r.load(fmt.Sprintf("clusters: [{id: c, partitions: 12, step: 2s, healthcheck: {timeout: 1m}, discover: {url: %q, networks: "+
		"[127.0.0.0/8], timeout: 1m}}]", directory.URL))
	r.tick()
	if n := r.count(); n["w1"] != 12 {
		t.Fatalf("want all on the only worker, have %v", n)
	}
	answer(fmt.Sprintf(`[{"id": "w2", "url": %q}, {"id": "w1", "url": %q}]`, second.URL, first.URL))
	if _, applied := r.tick(); applied["moved"] != 0 || len(r.assignment().Workers) != 2 {
		t.Errorf("want a cluster that grows to move nothing without need, have %v, %+v", applied, r.assignment().Workers)
	}
	for _, bad := range []string{
		"[]", "no", `[{"id": "w1", "url": "ftp://x"}]`, `[{"id": "", "url": "http://x"}]`,
		`[{"id": "w1", "url": "http://127.0.0.1:1", "capacity": -1}]`,
	} {
		answer(bad)
		if _, applied := r.tick(); applied["moved"] != 0 || len(r.assignment().Workers) != 2 {
			t.Errorf("reply %s: want the workers of the last time kept, have %v", bad, applied)
		}
	}
	answer(fmt.Sprintf(`[{"id": "w2", "url": %q}]`, second.URL))
	for range 6 {
		r.tick()
	}
	if n := r.count(); n["w2"] != 12 {
		t.Errorf("want all on the worker that is left, have %v", n)
	}
}
