package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
)

const switched = `pipelines:
  - id: work
    shared-state: {seen: null}
    stages:
      - id: first
        handlers: [{id: look, set: {seen: 1}}]
      - id: last
        handlers:
          - {id: tell, critical: false, set: {seen: !$ shared-state.seen + 1}}
          - {id: log, critical: false, set: {seen: !$ shared-state.seen + 1}}
`

var someTime = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`)

// TestSwitchCommands compares what the commands print with
// testdata/cli/switch.golden.
func TestSwitchCommands(t *testing.T) {
	t.Parallel()
	o := operateNode(t, switched)
	have := o.transcript(
		"switch list",
		"switch off work/last/tell --dry-run",
		"switch off work/last/tell --for 30m --reason incident",
		"limit work/last/tell 10/s --over skip",
		"limit work 100/s --for 2h",
		"limit",
		"limit work/first",
		"limit work/lats",
		"switch hold work/first --forever --format json",
		"switch list",
		"switch list --format json",
		"switch on work/last/tell",
		"limit work/last/tell --remove",
		"switch undo 4",
		"switch on work/first",
		"rollout work/last/log 25",
		"rollout work/last/log --remove",
		"switch list",
		"switch off work",
		"switch off work/lats/tell",
		"switch off work/last --for 0s",
		"switch off work/last --for soon",
		"switch off work/last --for 1h --forever",
		"switch off work --force --dry-run --format json",
		"limit work 0/s",
		"limit work --remove 10/s",
		"limit work 10/s --over drop",
		"rollout work/last/log much",
		"rollout work/last 10",
		"switch keep work/last --for 2h --reason known",
		"switch list",
		"switch keep work/last --dry-run",
		"switch on work/last",
		"switch keep work/lats",
		"switch undo 99",
		"switch undo first",
		"switch on work/last/tell",
	)
	golden(t, "switch.golden", have)
}

// golden compares what commands print with a file of testdata/cli.
func golden(t *testing.T, name, have string) {
	t.Helper()
	file := filepath.Join("..", "..", "testdata", "cli", name)
	if *update {
		if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if have != string(want) {
		t.Errorf("%s is not what the commands print; have\n%s", file, have)
	}
}

// A counter is a service that remembers when it was called.
type counter struct {
	mu    sync.Mutex
	calls []time.Time
}

func (c *counter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, time.Now())
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{}"))
}

// between counts the calls of a time.
func (c *counter) between(from, to time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, at := range c.calls {
		if at.After(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// TestSwitchOnTwoNodesStopsCallsWithinASecond flips a switch under load on two
// nodes that share a PostgreSQL, and counts the calls at the service.
func TestSwitchOnTwoNodesStopsCallsWithinASecond(t *testing.T) {
	t.Parallel()
	service := &counter{}
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	dsn, dir := enginetest.Postgres(t), t.TempDir()
	yaml := fmt.Sprintf(`services: [{id: push, url: %s}]
pipelines:
  - id: work
    stages: [{id: only, handlers: [{id: tell, critical: false, request: {service: push, path: /}}]}]
`, server.URL)
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(yaml), 0o644); err != nil {
		t.Fatal(err)
	}
	nodes := []*client.Client{client.New(startNode(t, dsn, dir), ""), client.New(startNode(t, dsn, dir), "")}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for _, n := range nodes {
		load.Go(func() {
			for ctx.Err() == nil {
				_, err := n.SubmitEvent(ctx, wire.Event{Type: "work"})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				clock.Pause(ctx, 5*time.Millisecond)
			}
		})
	}
	defer load.Wait()
	defer stop()
	off := false
	clock.Pause(ctx, time.Second)
	for i := range 3 {
		if _, err := nodes[i%2].SetControl(ctx, "work/only/tell", wire.ControlChange{Enabled: &off, Reason: "test"}, -1); err != nil {
			t.Fatal(err)
		}
		acknowledged := time.Now()
		clock.Pause(ctx, 1800*time.Millisecond)
		if n := service.between(acknowledged.Add(time.Second), time.Now()); n != 0 {
			t.Errorf("flip %d: want no call after a second, have %d", i, n)
		}
		if _, err := nodes[1-i%2].RemoveControl(ctx, "work/only/tell", "", -1); err != nil {
			t.Fatal(err)
		}
		on := time.Now()
		clock.Pause(ctx, 1500*time.Millisecond)
		if n := service.between(on, time.Now()); n == 0 {
			t.Errorf("flip %d: want calls again when the switch is on", i)
		}
	}
}
