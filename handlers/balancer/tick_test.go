package balancer_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/checkpoint"
	"procaas/engine/enginetest"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/sqlite"
	"procaas/handlers/balancer"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/handoff"
	"procaas/handlers/balancer/handoff/reference"
	"procaas/handlers/balancer/language"
)

// A loaded worker reports a load for each partition that it holds.
type loaded struct {
	*reference.Worker
	http.Handler
}

func (w loaded) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/healthcheck" {
		w.Handler.ServeHTTP(out, r)
		return
	}
	total, partitions := 0.0, map[int]float64{}
	for _, p := range w.Holder().State().Partitions {
		if p.Phase == handoff.Held {
			partitions[p.Partition] = 1 + float64(p.Partition%17)/3
			total += partitions[p.Partition]
		}
	}
	_ = json.NewEncoder(out).Encode(map[string]any{
		"requests": total, "drops": 0, "busy": min(1, total/500), "age_s": 1000, "window_s": 1, "partitions": partitions,
	})
}

// A documented is an engine in front of the documented pipeline and a cluster with real workers.
type documented struct {
	*engine.Engine
	clusters *clusters.Clusters
	t        testing.TB
}

// newDocumented starts the pipeline of pipelines/balancer for a cluster of some size, without its
// trigger. changes are pairs of a text of the pipeline and its replacement.
func newDocumented(t testing.TB, workers, partitions int, changes ...string) documented {
	t.Helper()
	pipeline, err := os.ReadFile("../../pipelines/balancer/balance.yaml")
	if err != nil {
		t.Fatal(err)
	}
	yaml, _, _ := strings.Cut(strings.NewReplacer(changes...).Replace(string(pipeline)), "triggers:")
	yaml += fmt.Sprintf("clusters:\n  - id: fanout\n    partitions: %d\n    step: 1s\n    map: {rule: zone, replicas: 4}\n"+
		stalls+"    workers:\n", partitions)
	for i := range workers {
		o := reference.DefaultOptions()
		o.ID, o.Cluster, o.Partitions = fmt.Sprint("worker-", i), "fanout", partitions
		w := reference.New(o)
		s := httptest.NewServer(loaded{w, w.Handler()})
		t.Cleanup(func() { s.Close(); w.Close() })
		yaml += fmt.Sprintf("      - {id: %s, url: %q, zone: z%d}\n", o.ID, s.URL, i%3)
	}
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "balancer.db"), sqlite.Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	o := engine.DefaultOptions()
	o.Name, o.Types, o.Store = "node", balancer.Bind(balancer.Types(), balancer.NewWorkers(nil)), store.Ports()
	o.Bundle = enginetest.LoadIn(t, tree.NewLanguage(language.Section()), yaml, balancer.Types()...)
	e := enginetest.Start(t, o)
	return documented{e, clusters.NewClusters(o.Store, e.Bundle, e.Now), t}
}

// tick runs the pipeline once.
func (d documented) tick() checkpoint.RunView { return d.tickWith(nil) }

func (d documented) tickWith(payload any) checkpoint.RunView {
	d.t.Helper()
	r, err := d.SubmitOne(d.t.Context(), intake.Submission{Event: model.Event{Type: "balance-cluster", Key: "fanout", Payload: payload}})
	if err != nil {
		d.t.Fatal(err)
	}
	v, err := d.AwaitRun(d.t.Context(), r.Run)
	if err != nil {
		d.t.Fatal(err)
	}
	return v
}

// The pipeline of the documentation balances a cluster of the article's size.
func TestTickOfALargeCluster(t *testing.T) {
	t.Parallel()
	d := newDocumented(t, 50, 4000)
	v := d.tick()
	if v.Status != model.Succeeded || v.SharedState["moved"] != 4000 {
		t.Fatalf("the first tick: %s at %s: %s; moved %v", v.Status, v.FailedPath, v.Error, v.SharedState["moved"])
	}
	s, err := d.clusters.ClusterStatus(t.Context(), "fanout")
	if err != nil {
		t.Fatal(err)
	}
	if s.State.Decided != 1 || len(s.Assignment.Owners) != 4000 {
		t.Errorf("have %d decisions and %d owners", s.State.Decided, len(s.Assignment.Owners))
	}
}

// A tick that fails before any handler of the balancer is called is not silent.
func TestTickFailureIsTold(t *testing.T) {
	t.Parallel()
	d := newDocumented(t, 2, 8, "observation: !$ sources.observe.response",
		"observation: !$ \"event.payload?.large == true ? map(1..10000, 'a text of some length') : sources.observe.response\"")
	failure := func() *clusters.TickFailure {
		t.Helper()
		f, err := d.clusters.TickFailure(t.Context(), "fanout")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if f := failure(); f != nil {
		t.Errorf("before the first tick: have %+v", f)
	}
	v := d.tickWith(map[string]any{"large": true})
	f := failure()
	if f == nil || f.Run != v.ID || f.Handler != "balance/decide/decide" || !strings.Contains(f.Error, "the result is larger than 256 KiB") {
		t.Fatalf("after a tick that failed: have %+v of run %s", f, v.ID)
	}
	if v := d.tick(); v.Status != model.Succeeded {
		t.Fatalf("%s at %s: %s", v.Status, v.FailedPath, v.Error)
	}
	if f := failure(); f != nil {
		t.Errorf("after a tick that succeeded: have %+v", f)
	}
	if _, err := d.clusters.TickFailure(t.Context(), "other"); !errors.Is(err, clusters.ErrNoCluster) {
		t.Errorf("of an unknown cluster: have %v", err)
	}
}

// What a reference names is not replaced unnoticed.
func TestReferenceOfAnOverlappingTickIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, "")
	r.load(strings.Replace(r.yaml, "partitions: 12", "partitions: 12000", 1))
	first := r.handle(&balancer.Observe{Cluster: "c"})
	if first["stored"] == nil || first["owners"] != nil {
		t.Fatalf("want a reference, have %d fields", len(first))
	}
	decided := r.handle(&balancer.Decide{Cluster: "c", Observation: first})
	r.now = r.now.Add(2 * time.Second)
	r.handle(&balancer.Observe{Cluster: "c"})
	for _, h := range []engine.Handler{
		&balancer.Decide{Cluster: "c", Observation: first},
		&balancer.Apply{Cluster: "c", Observation: first, Decision: decided},
	} {
		_, err := h.Handle(t.Context(), r.call())
		if err == nil || !strings.Contains(err.Error(), "another tick of the cluster has begun since") {
			t.Errorf("%T: have %v", h, err)
		}
	}
	if v := r.assignment().Version; v != 0 {
		t.Errorf("an overlapping tick has written version %d", v)
	}
}

// processorTime returns what this process has used, with its workers.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTick measures ticks of the documented pipeline, from the event to the end of its run. decision is the time
// to observe, decide and write.
func BenchmarkTick(b *testing.B) {
	for _, size := range []struct{ workers, partitions int }{{50, 4000}, {50, 10_000}, {1000, 10_000}} {
		b.Run(fmt.Sprintf("%dx%d", size.workers, size.partitions), func(b *testing.B) {
			d := newDocumented(b, size.workers, size.partitions)
			parts := map[string]time.Duration{}
			longest := map[string]time.Duration{}
			tick := func() {
				began, before := time.Now(), processorTime(b)
				v := d.tick()
				if v.Status != model.Succeeded {
					b.Fatalf("%s at %s: %s", v.Status, v.FailedPath, v.Error)
				}
				took := map[string]time.Duration{"tick": time.Since(began), "cpu": processorTime(b) - before}
				for _, h := range v.Handlers {
					if h.Started != nil && h.Finished != nil {
						took[h.Path[strings.LastIndex(h.Path, "/")+1:]] = h.Finished.Sub(*h.Started)
					}
				}
				took["decision"] = took["observe"] + took["decide"] + took["apply"]
				for part, x := range took {
					parts[part] += x
					longest[part] = max(longest[part], x)
				}
			}
			tick() // the first one assigns everything
			first := maps.Clone(parts)
			clear(parts)
			clear(longest)
			for b.Loop() {
				time.Sleep(time.Second)
				tick()
			}
			for part, x := range parts {
				b.ReportMetric(float64(first[part].Milliseconds()), part+"-first-ms")
				b.ReportMetric(float64(x.Milliseconds())/float64(b.N), part+"-ms")
				b.ReportMetric(float64(longest[part].Milliseconds()), part+"-max-ms")
			}
		})
	}
}
