package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/enginetest"
	"procaas/engine/model"
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
		"deadline work/last 300ms",
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

// TestDeadlineCommand compares what the command prints with testdata/cli/deadline.golden.
func TestDeadlineCommand(t *testing.T) {
	t.Parallel()
	o := operateNode(t, `pipelines:
  - id: order
    stages:
      - id: pay
        handlers: [{id: charge, request: {url: http://127.0.0.1:1/}}]
      - id: notify
        handlers:
          - {id: mail, critical: false, request: {url: http://127.0.0.1:1/}}
`)
	golden(t, "deadline.golden", o.transcript(
		"deadline notify 300ms --dry-run",
		"deadline order/notify 300ms --for 30m --reason late",
		"deadline",
		"deadline order/pay",
		"limit order/notify 10/s",
		"switch list",
		"switch list --format json",
		"deadline order/notify --remove",
		"switch undo 4",
		"deadline order/pay 300ms",
		"deadline order/pay 300ms --force --dry-run",
		"deadline order soon",
		"deadline order 300ms --remove",
		"deadline order 300ms --for 0s",
	))
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
	if d := cmp.Diff(string(want), have); d != "" {
		t.Errorf("%s is not what the commands print (-want +have):\n%s", file, d)
	}
}

// TestSwitchIsForAllNodes flips a switch on two nodes that share a PostgreSQL, and counts the calls at the service. How soon
// they learn of it, tests of the engine show in virtual time.
func TestSwitchIsForAllNodes(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, "{}")
	}))
	t.Cleanup(server.Close)
	dsn, dir := enginetest.MigratedPostgres(t), t.TempDir()
	yaml := fmt.Sprintf(`services: [{id: push, url: %s}]
pipelines:
  - id: work
    stages: [{id: only, handlers: [{id: tell, critical: false, request: {service: push, path: /}}]}]
`, server.URL)
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(yaml), 0o644); err != nil {
		t.Fatal(err)
	}
	nodes := []*client.Client{client.New(startNode(t, dsn, dir), ""), client.New(startNode(t, dsn, dir), "")}
	const events = 10 // on each node
	// called waits until all nodes have the switch that way, and counts the calls of some events.
	called := func(state string) int64 {
		t.Helper()
		eventually(t, "the switch is "+state+" on all nodes", func() bool {
			return !slices.ContainsFunc(nodes, func(n *client.Client) bool {
				all, err := n.Handlers(t.Context())
				return err != nil || all[0].Switch != state
			})
		})
		before := calls.Load()
		for i := range events * len(nodes) {
			r, _, err := nodes[i%len(nodes)].SubmitAndWait(t.Context(), []byte(`{"type": "work"}`), 30*time.Second)
			if err != nil || r.Status != string(model.Succeeded) {
				t.Fatal(r, err)
			}
		}
		return calls.Load() - before
	}
	off := false
	for i := range 3 {
		if _, err := nodes[i%2].SetControl(t.Context(), "work/only/tell", wire.ControlChange{Enabled: &off, Reason: "test"}, -1); err != nil {
			t.Fatal(err)
		}
		if n := called("off"); n != 0 {
			t.Errorf("flip %d: want no call, have %d", i, n)
		}
		if _, err := nodes[1-i%2].RemoveControl(t.Context(), "work/only/tell", "", -1); err != nil {
			t.Fatal(err)
		}
		if n := called("on"); n != events*int64(len(nodes)) {
			t.Errorf("flip %d: want %d calls, have %d", i, events*len(nodes), n)
		}
	}
}
