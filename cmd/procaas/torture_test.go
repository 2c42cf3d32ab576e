package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"procaas/engine/api/client"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
)

var (
	tortureTime = flag.Duration("torture", 12*time.Second, "how long TestTorture does harm; TestQueueTorture does half as long")
	tortureSeed = flag.Uint64("torture-seed", 0, "the faults of the torture tests; 0 takes new ones")
)

// drawSeed says from which seed a test draws its faults, so that it can be repeated.
func drawSeed(t *testing.T) uint64 {
	t.Helper()
	seed := *tortureSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -torture-seed %d", seed)
	return seed
}

// failWith fails a test with the first of what is wrong.
func failWith(t *testing.T, wrong []string) {
	t.Helper()
	for i, what := range wrong {
		if t.Error(what); i == 20 {
			t.Fatalf("… %d in all", len(wrong))
		}
	}
}

// TestTorture kills, pauses and cuts off three nodes on one PostgreSQL, which is
// restarted meanwhile, and looks at what came of it: every accepted event is
// finished; the events of a key went one after the other; every handler has had
// its effect once, and was called again only where a call failed or its node lost
// it, always with the same key; every automaton went its way; no run is lost and
// none doubled.
func TestTorture(t *testing.T) {
	t.Parallel()
	seed := drawSeed(t)
	db := enginetest.OwnPostgres(t)
	w := newWorld(t, seed)
	var nodes []*victim
	for i := range 3 {
		nodes = append(nodes, newVictim(t, i+1, seed, w, db))
	}
	for _, v := range nodes {
		v.start(t.Context())
	}

	harm, cancel := context.WithTimeout(t.Context(), *tortureTime)
	defer cancel()
	var faults sync.WaitGroup
	restarts := 0
	faults.Go(func() { restarts = tortureServer(harm, t, db, seed, *tortureTime) })
	for _, v := range nodes {
		faults.Go(func() { v.torture(harm) })
	}
	s := &sender{t: t, nodes: nodes}
	var senders sync.WaitGroup
	for i := range 24 {
		senders.Go(func() { s.send(harm, t.Context(), i, rand.New(rand.NewPCG(seed, uint64(i)+100))) })
	}
	faults.Wait()
	for _, v := range nodes {
		if v.process == nil {
			v.start(t.Context())
		}
	}
	w.calmDown()
	senders.Wait()

	h := &history{sent: s.sent}
	h.runs = settledRuns(t, nodes[0].client)
	for _, v := range nodes {
		rude := v.faults["ends without goodbye"]
		v.end(syscall.SIGTERM)
		if v.faults["ends without goodbye"] > rude {
			t.Errorf("node %d does not end well, though nothing is in its way; its log ends with\n%s", v.number, lastOf(v.log.Name()))
		}
		h.lapses = append(h.lapses, v.lapses...)
		t.Logf("node %d: %v, %d answers to commits lost", v.number, v.faults, v.proxy.Lost())
	}
	h.calls = w.heard()
	t.Logf("PostgreSQL was restarted %d times; %d events, %d calls, %d lapses", restarts, len(h.sent), len(h.calls), len(h.lapses))
	if len(h.sent) < int(tortureTime.Seconds()) || restarts == 0 {
		t.Errorf("only %d events and %d restarts of PostgreSQL: the test shows nothing", len(h.sent), restarts)
	}
	failWith(t, h.violations())
}

// A sender submits the events of many keys.
type sender struct {
	t     *testing.T
	nodes []*victim
	again func(error)   // called when an event is sent again, with the reason; may be nil
	pause time.Duration // between two events of a key; 0 sends as fast as they are taken

	mu   sync.Mutex // guards sent
	sent []sentEvent
}

// send leads one key after the other from open to close, one at least, until told to stop:
// then the last key is still led to its end.
func (s *sender) send(until, ctx context.Context, number int, r *rand.Rand) {
	for i := 1; i == 1 || until.Err() == nil; i++ {
		key, n := fmt.Sprintf("k%d-%d", number, i), 0
		kinds := []string{"open"}
		for range 2 + r.IntN(5) {
			kinds = append(kinds, []string{"work", "work", "work", "work", "rest"}[r.IntN(5)])
		}
		for _, kind := range append(kinds, "close") {
			n++
			e := sentEvent{key: key, kind: kind, n: n}
			if e.run = s.submit(ctx, r, e, key+"-"+fmt.Sprint(n)); e.run == "" {
				return
			}
			s.note(e)
			clock.Pause(until, s.pause)
		}
		late := sentEvent{key: key, kind: "work", n: n + 1, late: true}
		if late.run = s.submit(ctx, r, late, key+"-late"); late.run != "" {
			s.note(late)
		}
	}
}

func (s *sender) note(e sentEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, e)
}

// submit sends an event, with the same id until it is answered, sometimes to two
// nodes at once, and sometimes with another body afterwards. It returns the run, or
// nothing when the event is rejected.
func (s *sender) submit(ctx context.Context, r *rand.Rand, e sentEvent, id string) (run string) {
	ev := wire.Event{Type: e.kind, ID: id, Source: "torture", Key: e.key, Payload: map[string]any{"n": e.n}}
	var twin sync.WaitGroup
	other := ""
	if r.IntN(10) == 0 {
		seed := r.Uint64()
		twin.Go(func() { other = s.insist(ctx, rand.New(rand.NewPCG(seed, 3)), ev, e.late) })
	}
	run = s.insist(ctx, r, ev, e.late)
	twin.Wait()
	if other != "" && other != run {
		s.t.Errorf("event %s has the runs %s and %s", id, run, other)
	}
	if r.IntN(10) == 0 && !e.late {
		ev.Payload = map[string]any{"n": e.n, "forged": true}
		receipt, err := s.nodes[r.IntN(len(s.nodes))].client.SubmitEvent(ctx, ev)
		var p *problem.Problem
		if err == nil || errors.As(err, &p) && p.Status < 500 && p.Code != "id_conflict" {
			s.t.Errorf("event %s again with another body: want id_conflict, have %+v, %v", id, receipt, err)
		}
	}
	return run
}

// insist submits until there is an answer.
func (s *sender) insist(ctx context.Context, r *rand.Rand, ev wire.Event, late bool) (run string) {
	for ctx.Err() == nil {
		receipt, err := s.nodes[r.IntN(len(s.nodes))].client.SubmitEvent(ctx, ev)
		var p *problem.Problem
		switch {
		case err == nil:
			return receipt.Run
		case errors.As(err, &p) && p.Code == "event_rejected" && late:
			return ""
		case errors.As(err, &p) && p.Status < 500:
			s.t.Errorf("event %s is refused: %v", ev.ID, err)
			return ""
		}
		if s.again != nil {
			s.again(err)
		}
		clock.Pause(ctx, between(r, 10*time.Millisecond, 100*time.Millisecond))
	}
	return ""
}

// settledRuns waits until all runs have ended, and lists them.
func settledRuns(t *testing.T, c *client.Client) []endedRun {
	t.Helper()
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		runs, open := listRuns(ctx, t, c)
		if open == "" {
			return runs
		}
		if !clock.Pause(ctx, 100*time.Millisecond) {
			t.Errorf("run %s has not ended minutes after the last fault", open)
			return runs
		}
	}
}

// listRuns lists all runs, and names one that has not ended.
func listRuns(ctx context.Context, t *testing.T, c *client.Client) (runs []endedRun, open string) {
	for f := (store.RunFilter{Limit: 500}); ; {
		page, err := c.Runs(ctx, f)
		if err != nil {
			if ctx.Err() == nil {
				t.Logf("runs cannot be listed: %v", err)
			}
			return runs, "of the list"
		}
		for _, r := range page.Items {
			runs = append(runs, endedRun{r.ID, r.Key, r.Pipeline, string(r.Status)})
			if !r.Status.Ended() {
				open = r.ID
			}
		}
		if page.Next == nil || *page.Next == "" {
			return runs, open
		}
		f.Cursor = *page.Next
	}
}

// lastOf returns the end of a log, for people.
func lastOf(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-4000):])
}
