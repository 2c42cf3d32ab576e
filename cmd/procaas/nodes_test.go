package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"procaas/engine/clock"
	"procaas/engine/enginetest"
)

// threeNodes starts nodes on a PostgreSQL of their own.
func threeNodes(t *testing.T, seed uint64, lease time.Duration) (*world, []*victim) {
	t.Helper()
	db := enginetest.OwnPostgres(t)
	w := newWorld(t, seed)
	var nodes []*victim
	for i := range 3 {
		v := newVictim(t, i+1, seed, w, db)
		v.lease, v.drain = lease, time.Minute
		v.start(t.Context())
		nodes = append(nodes, v)
	}
	return w, nodes
}

// loadNodes submits events until ctx ends; sent waits for the last ones. Between two events of a key is a pause, so that the nodes
// have always something to do and never all of the processors.
func loadNodes(ctx context.Context, t *testing.T, nodes []*victim) (sent func() []sentEvent) {
	s := &sender{t: t, nodes: nodes, pause: 100 * time.Millisecond}
	var senders sync.WaitGroup
	for i := range 16 {
		senders.Go(func() { s.send(ctx, t.Context(), i, rand.New(rand.NewPCG(1, uint64(i)))) })
	}
	return func() []sentEvent {
		senders.Wait()
		return s.sent
	}
}

// TestRollingRestartHandsRunsOver stops and starts three nodes one after the other,
// twice, with events coming in all the time. Their lease is so long that a run
// which waited for its end would be seen.
func TestRollingRestartHandsRunsOver(t *testing.T) {
	t.Parallel()
	w, nodes := threeNodes(t, 1, 5*time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sent := loadNodes(ctx, t, nodes)
	for range 2 {
		for _, v := range nodes {
			clock.Pause(t.Context(), 200*time.Millisecond)
			v.end(syscall.SIGTERM)
			v.start(t.Context())
		}
	}
	cancel()
	h := &history{sent: sent()}
	h.runs = settledRuns(t, nodes[0].client)
	for _, v := range nodes {
		v.end(syscall.SIGTERM)
		h.lapses = append(h.lapses, v.lapses...)
	}
	h.calls = w.heard()
	if len(h.lapses) > 0 {
		t.Errorf("%d nodes lost runs while they drained", len(h.lapses))
	}
	if len(h.sent) < 200 {
		t.Errorf("only %d events were accepted: the test shows nothing", len(h.sent))
	}
	failWith(t, h.violations())
}

// TestDeadNodeIsTakenOverWithin5s kills a node while it works on runs. All of them go on
// elsewhere, although its lease is long: the others see that it is dead.
func TestDeadNodeIsTakenOverWithin5s(t *testing.T) {
	t.Parallel()
	lag := enginetest.MeasureLag(t)
	w, nodes := threeNodes(t, 2, 5*time.Minute)
	dead := nodes[0]
	w.calmDown()
	w.ignore(dead.id())
	sent := loadNodes(expired(t), t, nodes)
	waitForRuns(t, w, dead)
	killed := time.Now()
	dead.end(syscall.SIGKILL)
	events := sent()
	settledRuns(t, nodes[1].client)
	type lost struct{ run, path string }
	again := map[lost]time.Duration{}
	for _, c := range w.heard() {
		who := lost{c.run, c.path}
		if c.node == dead.id() {
			again[who] = -1
		} else if _, was := again[who]; was && again[who] < 0 {
			again[who] = c.start.Sub(killed)
		}
	}
	longest, most := time.Duration(0), lag.Allow(5*time.Second)
	for who, after := range again {
		if after < 0 || after > most {
			t.Errorf("%v was called again after %s, want %s at most", who, after, most)
		}
		longest = max(longest, after)
	}
	t.Logf("%d events, %d calls were lost, the last was made again after %s", len(events), len(again), longest)
	if len(again) == 0 {
		t.Error("no call was lost: the test shows nothing")
	}
}

// TestRestartedNodeGoesOnWithItsRuns kills the only node there is, and starts it again. It
// takes the runs of its former self over, although the lease of that one is far from over.
func TestRestartedNodeGoesOnWithItsRuns(t *testing.T) {
	t.Parallel()
	w, nodes := threeNodes(t, 3, time.Hour)
	w.calmDown()
	only := nodes[0]
	for _, other := range nodes[1:] {
		other.end(syscall.SIGTERM)
	}
	w.ignore(only.id())
	sent := loadNodes(expired(t), t, nodes[:1])
	waitForRuns(t, w, only)
	only.end(syscall.SIGKILL)
	only.start(t.Context())
	events := sent()
	h := &history{sent: events, runs: settledRuns(t, only.client), lapses: only.lapses, calls: w.heard()}
	failWith(t, h.violations())
}

// waitForRuns waits until a node has made calls that get no answer.
func waitForRuns(t *testing.T, w *world, v *victim) {
	t.Helper()
	for waiting := 0; waiting < 5; clock.Pause(t.Context(), 10*time.Millisecond) {
		waiting = 0
		for _, c := range w.heard() {
			if c.node == v.id() {
				waiting++
			}
		}
		if t.Context().Err() != nil {
			t.Fatal("the node has not been given runs")
		}
	}
}

// expired is a context that has ended: each sender leads one key to its end.
func expired(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
