package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/serve/stores"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/postgres"
	"procaas/engine/store"
	inboxremote "procaas/handlers/inbox/remote"
)

// multiplying makes two events of each, and honest none.
const multiplying = `pipelines:
  - {id: tick, stages: [{id: s, handlers: [{id: one, emit: {type: tick}}, {id: two, emit: {type: tick}}]}]}
  - {id: honest, stages: [{id: s, handlers: [{id: h, wait: {for: 1ms}}]}]}
`

// The budget of a loop, which is no setting.
const loopBurst, loopRate = 10_000, 10

// serveLoops lets nodes work off the whole budget of a loop, which keeps two processors busy for a minute.
var serveLoops = flag.Bool("loops", false, "come to the end of the budget of a loop on serving nodes")

// TestALoopOfServingNodesIsBounded hands an event to serving nodes whose pipeline makes two of
// each: they come to the end of the budget that they share, say so, and go on to serve others.
func TestALoopOfServingNodesIsBounded(t *testing.T) {
	if !*serveLoops {
		t.Skip("make test-long ONLY=loops runs it: it takes minutes")
	}
	t.Parallel()
	t.Run("one node on sqlite", func(t *testing.T) {
		t.Parallel()
		boundLoop(t, "sqlite:"+filepath.Join(t.TempDir(), "loop.db"), 1)
	})
	t.Run("two nodes on postgres", func(t *testing.T) {
		t.Parallel()
		boundLoop(t, enginetest.MigratedPostgres(t), 2)
	})
}

func boundLoop(t *testing.T, address string, nodes int) {
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	defer cancel()
	dir := pipelinesOf(t, multiplying)
	var all []*crashing
	var servers []*child
	for n := range nodes {
		c := &crashing{t: t, store: address, listen: freeAddress(t), pipelines: dir, name: fmt.Sprint("node-", n)}
		c.client = client.New("http://"+c.listen, "")
		all, servers = append(all, c), append(servers, c.start(ctx))
	}
	eventually(t, "all nodes to know each other", func() bool {
		known, err := all[0].client.Nodes(ctx)
		return err == nil && len(known) == nodes
	})
	began := time.Now()
	if _, err := all[0].client.SubmitEvent(ctx, wire.Event{Type: "tick"}); err != nil {
		t.Fatal(err)
	}
	parked := regexp.MustCompile(`(?m)^procaas_runs_parked\{pipeline="tick",reason="loop"\} [1-9]`)
	for _, c := range all {
		eventually(t, "runs that wait for the budget of the loop", func() bool { return parked.Match(c.metrics()) })
		receipt, err := c.client.SubmitEvent(ctx, wire.Event{Type: "honest"})
		if err != nil {
			t.Fatal(err)
		}
		c.await(ctx, receipt.Run, model.Succeeded, "")
	}
	for _, p := range servers {
		p.kill()
	}
	// Each run costs one of the budget, or waits for it, and one that costs nothing comes with it.
	most := 3*loopBurst + 3*loopRate*int(time.Since(began)/time.Second)
	s, err := stores.Options{DSN: address}.Open(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if have := len(eventsOf(ctx, t, s, "tick")); have < loopBurst/2 || have > most {
		t.Errorf("want some %d events, and at most %d, have %d", loopBurst, most, have)
	}
}

// pipelinesOf writes pipelines where nodes read them.
func pipelinesOf(t *testing.T, text string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// metrics reads what Prometheus would; nothing when the node does not answer.
func (c *crashing) metrics() []byte {
	reply, err := http.Get("http://" + c.listen + "/metrics")
	if err != nil {
		return nil
	}
	defer reply.Body.Close()
	text, _ := io.ReadAll(reply.Body)
	return text
}

// eventsOf reads the events of a pipeline from a store.
func eventsOf(ctx context.Context, t *testing.T, s store.Store, pipeline string) (all []model.Event) {
	t.Helper()
	for filter := (store.RunFilter{Pipeline: pipeline, Limit: 1000}); ; {
		records, next, err := s.Runs.List(ctx, filter)
		if err != nil {
			t.Fatal(err)
		}
		for i := range records {
			all = append(all, records[i].Event)
		}
		if next == "" {
			return all
		}
		filter.Cursor = next
	}
}

// passing hands an event on to the next key, so that a chain goes to and fro between cells.
const passing = `flows:
  - {id: keyed, key: !$ event.key}
pipelines:
  - id: pass
    flow: keyed
    stages:
      - id: s
        handlers:
          - id: on
            enabled: !$ event.payload.n < 40
            emit: {type: pass, key: !$ "'key-' + string(event.payload.n + 1)", payload: {n: !$ event.payload.n + 1}}
`

// TestEventsCarryTheLengthOfTheirChainBetweenCells lets a chain of events go through the outboxes
// of an inbox over two databases: each event knows how many led to it, whichever cell has it,
// and since when.
func TestEventsCarryTheLengthOfTheirChainBetweenCells(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	defer cancel()
	home, b := enginetest.MigratedPostgres(t), enginetest.MigratedPostgres(t)
	c := &crashing{t: t, store: home, cells: []string{"b=" + b}, listen: freeAddress(t), pipelines: pipelinesOf(t, passing)}
	c.client = client.New("http://"+c.listen, "")
	server := c.start(ctx)
	order := inboxremote.InboxMoveRequest{Slots: "0-2047", To: "b", Wait: wire.Duration(time.Minute)}
	eventually(t, "half of the slots in b", func() bool {
		v, err := inboxremote.Read(ctx, c.client)
		if err == nil && len(v.Moves) == 0 {
			_, _ = inboxremote.Move(ctx, c.client, order) // asked for again until it is
		}
		return err == nil && len(v.Cells) == 2 && v.Cells[1].Slots == 2048
	})
	if _, err := c.client.SubmitEvent(ctx, wire.Event{Type: "pass", Key: "key-0", Payload: map[string]any{"n": 0}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the chain", func() bool {
		return bytes.Contains(c.metrics(), []byte(`procaas_runs_total{pipeline="pass",status="succeeded"} 41`))
	})
	server.terminate()
	var found [41]bool
	var since time.Time
	for _, dsn := range []string{home, b} {
		s, err := postgres.Open(ctx, dsn, postgres.Options{Cell: true})
		if err != nil {
			t.Fatal(err)
		}
		events := eventsOf(ctx, t, s.Ports(), "pass")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if len(events) == 0 {
			t.Error("want a part of the chain in each cell")
		}
		for _, e := range events {
			var n int
			if _, err := fmt.Sscan(strings.TrimPrefix(e.Key, "key-"), &n); err != nil {
				t.Fatal(err)
			}
			if found[n] = true; e.Hops != n {
				t.Errorf("want event %d to be the %dth of its chain, have %d", n, n, e.Hops)
			}
			switch {
			case n == 0:
			case since.IsZero():
				since = e.ChainSince
			case !e.ChainSince.Equal(since):
				t.Errorf("event %d: want the chain to last since %s, have %s", n, since, e.ChainSince)
			}
		}
	}
	for n, there := range found {
		if !there {
			t.Errorf("event %d is in no cell", n)
		}
	}
}
