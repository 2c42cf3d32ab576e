package balancer

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"procaas/dsl/tree"
	"procaas/engine/enginetest"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/language"
)

// drawLive makes a cluster with a random map, policy and number of workers.
func drawLive(t *rapid.T) *language.Cluster {
	n := rapid.IntRange(1, 7).Draw(t, "workers")
	yaml := fmt.Sprintf("clusters:\n  - id: c\n    partitions: %d\n    step: 2s\n    policy: %s\n    map: {rule: %s, replicas: "+
		"%d, seed: %d}\n    workers:\n",
		rapid.IntRange(1, 20).Draw(t, "partitions"), rapid.SampledFrom(Names()).Draw(t, "policy"),
		rapid.SampledFrom([]string{"ring", "zone", "random"}).Draw(t, "rule"), rapid.IntRange(1, n).Draw(t, "replicas"),
		rapid.IntRange(0, 99).Draw(t, "seed"))
	for i := range n {
		yaml += fmt.Sprintf("      - {id: w%d, url: 'http://127.0.0.1:%d', zone: z%d}\n", i, 9100+i, i%3)
	}
	b := enginetest.LoadIn(t, tree.NewLanguage(language.Section()), yaml)
	return language.ClustersOf(b)[0]
}

// A state is a cluster as its balancer leaves it from tick to tick.
type state struct {
	cluster *language.Cluster
	owners  []int
	up      []bool
	allowed [][]int
}

func (s *state) observe(at float64) *Observation {
	o := &Observation{Cluster: "c", At: at, Version: 1, Owners: slices.Clone(s.owners), Weights: make([]*float64, s.cluster.Partitions)}
	for i, w := range s.cluster.Workers {
		x := Observed{AssignedWorker: clusters.AssignedWorker{ID: w.ID, URL: w.URL, Zone: w.Zone}, Listed: true, Up: s.up[i]}
		if x.Up {
			served, dropped, busy, age := 100.0, 0.0, 0.5, at
			x.Requests, x.Drops, x.Busy, x.Age = &served, &dropped, &busy, &age
		}
		o.Workers = append(o.Workers, x)
	}
	return o
}

// apply makes the moves, which must be allowed, to workers that answer, one for each
// partition.
func (s *state) apply(t *rapid.T, d Decision, levers clusters.Levers) {
	moved := map[int]bool{}
	for _, m := range d.Moves {
		to := slices.IndexFunc(s.cluster.Workers, func(w *language.ClusterWorker) bool { return w.ID == m.To })
		first := s.owners[m.Partition] < 0
		switch {
		case moved[m.Partition]:
			t.Fatalf("partition %d is moved twice in %v", m.Partition, d.Moves)
		case !slices.Contains(s.allowed[m.Partition], to):
			t.Fatalf("worker %s may not hold partition %d", m.To, m.Partition)
		case !s.up[to] && !first:
			t.Fatalf("partition %d is moved to %s, which does not answer", m.Partition, m.To)
		case has(levers.Banned, m.To):
			t.Fatalf("partition %d is moved to %s, which is banned", m.Partition, m.To)
		case m.Reason == "":
			t.Fatalf("partition %d is moved without a reason", m.Partition)
		}
		moved[m.Partition] = true
		s.owners[m.Partition] = to
	}
}

// Whatever workers fail and whatever people tell the balancer, every assignment is
// allowed; and when things calm down, each partition is on a living worker that may hold
// it when there is one.
func TestEveryLiveAssignmentIsAllowed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawLive(t)
		s := &state{
			cluster: c, owners: slices.Repeat([]int{-1}, c.Partitions), up: slices.Repeat([]bool{true}, len(c.Workers)),
			allowed: language.Holders(c, c.Members()),
		}
		at := 1e9
		live, err := NewLive(c, s.observe(at))
		if err != nil {
			t.Fatal(err)
		}
		var levers clusters.Levers
		tick := func() Decision {
			at += 2
			o := s.observe(at)
			o.Tell(levers)
			d := live.Decide(o, levers)
			s.apply(t, d, levers)
			return d
		}
		for range rapid.IntRange(1, 30).Draw(t, "ticks") {
			for i := range s.up {
				if rapid.IntRange(0, 9).Draw(t, "flips") == 0 {
					s.up[i] = !s.up[i]
				}
			}
			id := c.Workers[rapid.IntRange(0, len(c.Workers)-1).Draw(t, "worker")].ID
			switch rapid.IntRange(0, 12).Draw(t, "lever") {
			case 0:
				levers.Banned = map[string]clusters.Lever{id: {Reason: "test"}}
			case 1:
				levers.Draining = map[string]clusters.Lever{id: {Reason: "test"}}
			case 2:
				levers.Pins = map[int]clusters.Lever{rapid.IntRange(0, c.Partitions-1).Draw(t, "pinned"): {Worker: id, Reason: "test"}}
			case 3:
				levers.Frozen = &clusters.Lever{Reason: "test"}
			case 4:
				levers.DryRun = &clusters.Lever{Reason: "test"}
			case 5:
				levers = clusters.Levers{}
			}
			if d := tick(); (levers.Frozen != nil || levers.DryRun != nil) && len(d.Moves) > 0 {
				t.Fatalf("want no moves while frozen or dry, have %v", d.Moves)
			}
		}
		levers = clusters.Levers{}
		for range 120 { // long enough for a crowd of silent workers to be believed
			tick()
		}
		for p, w := range s.owners {
			could := slices.ContainsFunc(s.allowed[p], func(i int) bool { return s.up[i] })
			if w < 0 || could && !s.up[w] && !poisoned(live, p, at) {
				t.Fatalf("partition %d is on worker %d, though one of %v is up: %v", p, w, s.allowed[p], s.up)
			}
		}
	})
}

// poisoned reports whether v5 leaves a partition where it is because its workers die.
func poisoned(l *Live, p int, at float64) bool {
	e, ok := l.policy.(*controller)
	return ok && e.deaths[p].of(at, deathHalf) >= deathsBlame/2
}

// A cluster in which nothing happens moves nothing, under any policy.
func TestIdleClusterStays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawLive(t)
		s := &state{
			cluster: c, owners: slices.Repeat([]int{-1}, c.Partitions), up: slices.Repeat([]bool{true}, len(c.Workers)),
			allowed: language.Holders(c, c.Members()),
		}
		live, err := NewLive(c, s.observe(1e9))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			d := live.Decide(s.observe(1e9+2*float64(i+1)), clusters.Levers{})
			if i > 0 && len(d.Moves) > 0 {
				t.Fatalf("tick %d: want no moves, have %v", i, d.Moves)
			}
			s.apply(t, d, clusters.Levers{})
		}
	})
}

// Refused moves leave no trace: the same move may be wanted again.
func TestRefusedMovesAreForgotten(t *testing.T) {
	t.Parallel()
	c := Cluster{Workers: 3, Partitions: 3, Step: 2, Allowed: [][]int{{0, 1}, {0, 1}, {0, 2}}, Assignment: []int{0, 0, 2}}
	e := newController(c, DefaultParams())
	r := &Report{
		Up: []bool{true, true, true}, Draining: []bool{true, false, false}, Requests: []float64{9, 9, 9}, Drops: make([]float64, 3),
		Busy: []float64{.1, .1, .1}, Age: []float64{900, 900, 900}, Weights: []float64{3, 3, 3}, Assignment: c.Assignment,
	}
	for i := range 5 {
		r.At += 2
		moves := e.Decide(r)
		if len(moves) != 2 {
			t.Fatalf("report %d: want both partitions to leave the draining worker, have %v", i, moves)
		}
		e.forget(r)
		for p := range e.loads {
			if len(e.left[p]) != 0 || e.owner[p] != c.Assignment[p] {
				t.Fatalf("report %d: partition %d is remembered as moved: %+v", i, p, e.left[p])
			}
		}
	}
}

// Whoever is drained by people gets empty under each policy, and what it had is spread over
// the others, also while nobody asks for anything.
func TestDrainedWorkerIsSpreadOverTheOthers(t *testing.T) {
	t.Parallel()
	for _, policy := range Names() {
		for _, load := range []float64{0, 1e-3, 2} {
			s := liveOf(t, policy, 3, 30)
			at := 1e9
			live, err := NewLive(s.cluster, s.observe(at))
			if err != nil {
				t.Fatal(err)
			}
			levers := clusters.Levers{}
			for tick := range 60 {
				if tick == 10 {
					levers.Draining = map[string]clusters.Lever{"w0": {Reason: "repair"}}
				}
				at += 2
				o := s.observe(at)
				for p := range o.Weights {
					if o.Weights[p] = &load; load == 1e-3 && p%5 > 0 {
						o.Weights[p] = new(float64) // hardly anything, and that on few partitions
					}
				}
				for i := range o.Workers {
					if load == 1e-3 {
						o.Workers[i].Requests, o.Workers[i].Busy = nil, nil
					}
				}
				o.Tell(levers)
				for _, m := range live.Decide(o, levers).Moves {
					s.owners[m.Partition] = slices.IndexFunc(s.cluster.Workers, func(w *language.ClusterWorker) bool { return w.ID == m.To })
				}
			}
			count := make([]int, 3)
			for _, w := range s.owners {
				count[w]++
			}
			if count[0] != 0 || count[1] < 12 || count[2] < 12 {
				t.Errorf("%s, load %v: want nothing on w0 and 15 on each other one, have %v", policy, load, count)
			}
		}
	}
}

// liveOf makes a cluster with a policy whose workers may hold everything.
func liveOf(t *testing.T, policy string, workers, partitions int) *state {
	t.Helper()
	yaml := fmt.Sprintf("clusters:\n  - id: c\n    partitions: %d\n    step: 2s\n    policy: %s\n    map: {rule: ring, replicas: "+
		"%d}\n    workers:\n", partitions, policy, workers)
	for i := range workers {
		yaml += fmt.Sprintf("      - {id: w%d, url: 'http://127.0.0.1:%d'}\n", i, 9100+i)
	}
	b := enginetest.LoadIn(t, tree.NewLanguage(language.Section()), yaml)
	return &state{cluster: language.ClustersOf(b)[0], owners: slices.Repeat([]int{-1}, partitions), up: slices.Repeat([]bool{true}, workers)}
}
