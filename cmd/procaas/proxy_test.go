package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/serve"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/engine"
	"procaas/engine/api/cli"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/handoff"
	"procaas/handlers/balancer/handoff/reference"
)

// A fanout is a cluster of workers behind a node that balances them and passes requests
// on, all in this process.
type fanout struct {
	t       *testing.T
	node    *serve.Node
	proxy   string
	workers []*reference.Worker
	servers []*httptest.Server
}

const fanoutPartitions = 64

// newFanout starts so many workers, and a node with the pipelines that we ship; ticks
// are more frequent.
func newFanout(t *testing.T, workers int) *fanout {
	t.Helper()
	x := &fanout{t: t}
	dir := t.TempDir()
	cluster := fmt.Sprintf("clusters:\n  - id: fanout\n    partitions: %d\n    step: 250ms\n    healthcheck: {timeout: 1m}\n    key: header:X-Key\n    workers:\n", fanoutPartitions)
	for i := range workers {
		o := reference.DefaultOptions()
		o.ID, o.Cluster, o.Partitions, o.Capacity, o.Cold, o.Window = fmt.Sprint("worker-", i+1), "fanout", fanoutPartitions, 1e9, 1,
			250*time.Millisecond
		w := reference.New(o)
		s := httptest.NewServer(w.Handler())
		t.Cleanup(func() { s.Close(); w.Close() })
		x.workers, x.servers = append(x.workers, w), append(x.servers, s)
		cluster += fmt.Sprintf("      - {id: %s, url: %q, zone: z%d}\n", o.ID, s.URL, i%3)
	}
	pipeline, err := os.ReadFile(filepath.Join("..", "..", "pipelines", "balancer", "balance.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for old, replaced := range map[string]string{
		"every: 2s": "every: 250ms", "{cluster: fanout, phase: settle}": "{cluster: fanout, phase: settle, grace: 500ms}",
	} {
		if !bytes.Contains(pipeline, []byte(old)) {
			t.Fatalf("balance.yaml has no %q any more", old)
		}
		pipeline = bytes.ReplaceAll(pipeline, []byte(old), []byte(replaced))
	}
	for name, data := range map[string][]byte{"cluster.yaml": []byte(cluster), "balance.yaml": pipeline} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	x.start(dir)
	return x
}

func (x *fanout) start(dir string) {
	x.t.Helper()
	s := cli.Streams{In: strings.NewReader(""), Out: new(bytes.Buffer), Err: new(bytes.Buffer)}
	f := serve.Flags{
		Store: "sqlite:" + filepath.Join(x.t.TempDir(), "o.db"), Listen: "127.0.0.1:0", Name: "here", Migrate: true, MaxInFlight: 64,
		Lease: 30 * time.Second,
		Drain: time.Second, MaxBody: "1MiB", LogFormat: "json", LogLevel: "error", Pipelines: []string{dir},
	}
	if err := errors.Join(f.Set("proxy", "fanout=:0"), f.Set("proxy-patience", "2m")); err != nil {
		x.t.Fatal(err)
	}
	bundle, err := source.Bundle(s, f.Pipelines, dsl.Options{})
	if err != nil {
		x.t.Fatal(err)
	}
	if x.node, err = serve.Open(x.t.Context(), s, f, bundle); err != nil {
		x.t.Fatal(err)
	}
	x.proxy = "http://" + x.node.Listening()[0]
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- x.node.Run(ctx) }()
	x.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			x.t.Error(err)
		}
	})
}

// served tells how many partitions the living workers hold.
func (x *fanout) served(dead ...int) int {
	n := 0
	for i, w := range x.workers {
		if len(dead) > 0 && dead[0] == i {
			continue
		}
		for _, p := range w.Holder().State().Partitions {
			if p.Phase == handoff.Held {
				n++
			}
		}
	}
	return n
}

// A caller sends requests of some keys, one after another, and wants every one answered.
type caller struct {
	x      *fanout
	client *http.Client
	mu     sync.RWMutex // is locked while the kind of requests changes
	kinds  []string     // of requests: methods, and POST+ for one that may be repeated

	count  sync.Mutex // guards what follows
	served int
	failed []string
}

func (c *caller) answered() int {
	c.count.Lock()
	defer c.count.Unlock()
	return c.served
}

// only lets callers send these kinds alone. When it returns, no other is in flight.
func (c *caller) only(kinds ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kinds = kinds
}

// run calls until ctx ends. Half of the requests are for one key, which all callers share.
func (c *caller) run(ctx context.Context, name string) {
	tokens := map[string]int64{}
	for i := 0; ctx.Err() == nil; i++ {
		key := "hot"
		if i%2 == 0 {
			key = fmt.Sprint(name, "-", i%16)
		}
		c.mu.RLock()
		a, err := c.send(c.kinds[i%len(c.kinds)], key)
		c.mu.RUnlock()
		if err == nil && a.Token < tokens[key] {
			err = fmt.Errorf("the answer is of version %d, after one of version %d: two workers serve partition %d", a.Token, tokens[key],
				a.Partition)
		}
		c.count.Lock()
		c.served++
		if err != nil {
			c.failed = append(c.failed, err.Error())
		} else {
			tokens[key] = a.Token
		}
		c.count.Unlock()
	}
}

func (c *caller) send(kind, key string) (a reference.Answer, err error) {
	method, repeatable := strings.CutSuffix(kind, "+")
	// A request that is broken off is none that has failed.
	r, err := http.NewRequestWithContext(context.WithoutCancel(c.x.t.Context()), method, c.x.proxy+"/keys/"+key, strings.NewReader("a body"))
	if err != nil {
		return a, err
	}
	r.Header.Set("X-Key", key)
	if repeatable {
		r.Header.Set("Idempotency-Key", key)
	}
	reply, err := c.client.Do(r)
	if err != nil {
		return a, err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %d %s", kind, key, reply.StatusCode, body)
	}
	if err == nil {
		err = json.Unmarshal(body, &a)
	}
	return a, err
}

// TestMovesAreInvisibleToCallers drains one of eight workers and kills another one, while
// requests come for all partitions, most for a hot one. All are answered.
func TestMovesAreInvisibleToCallers(t *testing.T) {
	t.Parallel()
	x := newFanout(t, 8)
	c := &caller{x: x, kinds: []string{"GET", "POST"}, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}}
	t.Cleanup(c.client.CloseIdleConnections)
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for i := range 4 { // who wait for the first assignment
		callers.Go(func() { c.run(ctx, fmt.Sprint("caller-", i)) })
	}
	t.Cleanup(func() { stop(); callers.Wait() })
	eventually(x.t, "all partitions are served", func() bool { return x.served() == fanoutPartitions })

	draining := engine.PartitionOf("hot", fanoutPartitions)
	hot := func() int {
		a, err := clusters.ReadAssignment(t.Context(), x.node.Store().Documents, "fanout")
		if err != nil {
			t.Fatal(err)
		}
		return a.Owners[draining]
	}
	first := hot()
	x.workers[first].Drain()
	eventually(x.t, "the worker with the hot partition has nothing left", func() bool {
		return x.workers[first].Holds() == 0 && x.served() == fanoutPartitions
	})
	seen := c.answered()
	eventually(x.t, "requests come after the drain", func() bool { return c.answered() > seen+50 })

	// What may not be repeated may fail when a worker dies in the middle of it.
	c.only("GET", "PUT", "POST+")
	second := hot()
	if second == first {
		t.Fatal("the hot partition has not moved")
	}
	x.servers[second].Listener.Close() // first, as with a process that is killed
	x.servers[second].CloseClientConnections()
	x.servers[second].Close()
	eventually(x.t, "the others serve what the dead worker had", func() bool { return x.served(second) == fanoutPartitions })
	seen = c.answered()
	eventually(x.t, "requests come after the death", func() bool { return c.answered() > seen+50 })

	stop()
	callers.Wait()
	if len(c.failed) > 0 {
		t.Errorf("%d of %d requests failed; the first: %s", len(c.failed), c.served, c.failed[0])
	}
	t.Logf("%d requests, %d versions", c.served, x.version())
}

func (x *fanout) version() int64 {
	a, err := clusters.ReadAssignment(x.t.Context(), x.node.Store().Documents, "fanout")
	if err != nil {
		x.t.Error(err)
	}
	return a.Version
}
