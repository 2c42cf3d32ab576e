package balancer_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"procaas/dsl/datum"
	"procaas/handlers/balancer"
	"procaas/handlers/balancer/handoff"
	"procaas/handlers/balancer/handoff/reference"
)

// newHolders makes a rig whose workers take part in the hand-off.
func newHolders(t *testing.T, n int) (*rig, []*reference.Worker, []*httptest.Server) {
	t.Helper()
	r := newRig(t, n, "")
	var workers []*reference.Worker
	var servers []*httptest.Server
	yaml := "clusters:\n  - id: c\n    partitions: 12\n    step: 2s\n" + stalls + "    workers:\n"
	for i := range n {
		o := reference.DefaultOptions()
		o.ID, o.Cluster, o.Partitions = fmt.Sprint("w", i+1), "c", 12
		w := reference.New(o)
		s := httptest.NewServer(w.Handler())
		t.Cleanup(func() { s.Close(); w.Close() })
		workers, servers = append(workers, w), append(servers, s)
		yaml += fmt.Sprintf("      - {id: %s, url: %q}\n", o.ID, s.URL)
	}
	r.load(yaml)
	return r, workers, servers
}

func held(w *reference.Worker) (out []int) {
	for _, p := range w.Holder().State().Partitions {
		if p.Phase == handoff.Held {
			out = append(out, p.Partition)
		}
	}
	return out
}

// agrees checks that each worker serves what the assignment says, and nothing else.
func (r *rig) agrees(workers []*reference.Worker) {
	r.t.Helper()
	a := r.assignment()
	for i, w := range workers {
		var want []int
		for p, owner := range a.Owners {
			if owner == i {
				want = append(want, p)
			}
		}
		if have := held(w); fmt.Sprint(have) != fmt.Sprint(want) {
			r.t.Errorf("worker %d holds %v, want %v", i, have, want)
		}
	}
}

func (r *rig) settle() map[string]any {
	r.t.Helper()
	return r.handle(&balancer.Handoff{Cluster: "c", Phase: "settle", Patience: time.Minute, Timeout: time.Minute, Grace: 5 * time.Second})
}

func TestHandoffBringsWorkersToTheAssignment(t *testing.T) {
	t.Parallel()
	r, workers, _ := newHolders(t, 3)
	if have := r.settle(); have["held"] != 0 || have["version"] != 0 {
		t.Errorf("before anything is assigned: have %v", have)
	}
	r.tick()
	if have := r.settle(); have["held"] != 12 || have["taken"] != 12 || have["version"] != 1 {
		t.Errorf("have %v", have)
	}
	r.agrees(workers)

	// A worker that is about to stop hands over what it has, step by step.
	workers[0].Drain()
	for i := 0; len(held(workers[0])) > 0; i++ {
		if i > 100 {
			t.Fatal("a worker that drains keeps its partitions")
		}
		r.now = r.now.Add(2 * time.Second)
		seen := r.handle(&balancer.Observe{Cluster: "c"})
		decision := r.handle(&balancer.Decide{Cluster: "c", Observation: seen})
		moves := len(decision["moves"].([]any))
		if have := r.handle(&balancer.Handoff{
			Cluster: "c", Phase: "prepare", Decision: decision, Patience: time.Minute,
			Timeout: time.Minute,
		}); have["warm"] != moves {
			t.Errorf("%d moves were prepared: have %v", moves, have)
		}
		r.handle(&balancer.Apply{Cluster: "c", Observation: seen, Decision: decision})
		if have := r.settle(); have["released"] != moves || have["taken"] != moves || have["held"] != 12 {
			t.Errorf("after %d moves: have %v", moves, have)
		}
		r.agrees(workers)
	}
}

func TestHandoffToldByAnOldBalancerFails(t *testing.T) {
	t.Parallel()
	r, workers, _ := newHolders(t, 2)
	r.tick()
	if _, err := workers[1].Holder().Take(handoff.Order{Cluster: "c", Version: 7, Partitions: []int{3}}); err != nil {
		t.Fatal(err)
	}
	_, err := (&balancer.Handoff{Cluster: "c", Phase: "settle", Timeout: time.Minute}).Handle(t.Context(), r.call())
	if err == nil || !strings.Contains(err.Error(),
		"worker w2: the order is by version 1 of the assignment, and version 7 has been heard of") {
		t.Errorf("have %v", err)
	}
	if have := held(workers[0]); len(have) != 0 {
		t.Errorf("a partition was handed over all the same: %v", have)
	}
}

func TestHandoffWaitsForASilentWorkerForTheGrace(t *testing.T) {
	t.Parallel()
	r, workers, servers := newHolders(t, 3)
	r.tick()
	r.settle()
	lost := len(held(workers[0]))
	servers[0].Close()
	for moved := 0; moved < lost; {
		_, applied := r.tick()
		moved += int(applied["moved"].(int))
		if r.now.After(time.UnixMilli(1_700_000_000_000).Add(time.Hour)) {
			t.Fatal("the balancer leaves a dead worker its partitions")
		}
	}
	have := r.handle(&balancer.Handoff{Cluster: "c", Phase: "settle", Timeout: time.Minute, Grace: 5 * time.Second})
	if have["held"] != 12-lost || have["waiting"] != lost || fmt.Sprint(have["silent"]) != "[w1]" {
		t.Errorf("within the grace: have %v", have)
	}
	r.now = r.now.Add(5 * time.Second)
	if have := r.settle(); have["held"] != 12 || have["taken"] != lost {
		t.Errorf("after it: have %v", have)
	}
}

// Workers with a token follow orders that have it, and no others.
func TestOrdersHaveTheTokenOfTheCluster(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, "")
	o := reference.DefaultOptions()
	o.ID, o.Cluster, o.Partitions, o.Token = "w1", "c", 12, "one"
	w := reference.New(o)
	s := httptest.NewServer(w.Handler())
	t.Cleanup(func() { s.Close(); w.Close() })
	settle := func(secret, value string) (map[string]any, error) {
		r.load(fmt.Sprintf("clusters:\n  - id: c\n    partitions: 12\n    step: 2s\n%s%s    workers: [{id: w1, url: %q}]\n", stalls, secret,
			s.URL))
		c := r.call()
		c.Resolve = func(s datum.Secret) (string, error) {
			if s.Name != "ORDERS" {
				return "", fmt.Errorf("no secret %s", s.Name)
			}
			return value, nil
		}
		h := &balancer.Handoff{Cluster: "c", Phase: "settle", Timeout: time.Minute, Grace: 5 * time.Second}
		result, err := h.Handle(t.Context(), c)
		if err != nil {
			return nil, err
		}
		return result.Response.(map[string]any), nil
	}
	r.load(fmt.Sprintf("clusters:\n  - id: c\n    partitions: 12\n    step: 2s\n%s    workers: [{id: w1, url: %q}]\n", stalls, s.URL))
	r.tick()
	for _, refused := range []struct{ secret, value string }{
		{"", "one"},
		{"    secret: ORDERS\n", "another"},
		{"    secret: ORDERS\n", "on"},
	} {
		have, err := settle(refused.secret, refused.value)
		if err != nil || have["held"] != 0 || fmt.Sprint(have["silent"]) != "[w1]" || w.Holds() != 0 || w.Holder().State().Version != 0 {
			t.Errorf("%+v: have %v, %v and %d partitions", refused, have, err, w.Holds())
		}
	}
	for value, want := range map[string]string{" \n": "secret ORDERS of cluster c is empty", "one\ntwo": "more than one line"} {
		if _, err := settle("    secret: ORDERS\n", value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want %s, have %v", value, want, err)
		}
	}
	if _, err := settle("    secret: NONE\n", ""); err == nil || !strings.Contains(err.Error(), "secret of cluster c: no secret NONE") {
		t.Errorf("have %v", err)
	}
	if have, err := settle("    secret: ORDERS\n", "one\n"); err != nil || have["held"] != 12 || w.Holds() != 12 {
		t.Errorf("with the token: have %v, %v", have, err)
	}
}
