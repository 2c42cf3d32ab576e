package balancer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/language"
)

// A shop is a small live cluster in virtual time. Its workers drop requests in the middle of a step,
// as real ones do: requests arrive at random, and a worker catches up on a quarter of a second at
// most. Observations and levers take the same way as in production.
type shop struct {
	t        *testing.T
	live     *Live
	cluster  *language.Cluster
	levers   clusters.Levers
	capacity float64   // requests per second of a warm worker
	rate     []float64 // requests per second of each partition
	swing    float64   // by which the rate goes up and down every three seconds, as a share
	busy     func(float64) float64
	lie      map[int]func(*Observed) // what a worker reports instead

	at     float64
	owner  []int
	up     []bool
	began  []float64
	filled []float64 // when each partition's cache began to fill
	budget []float64
	random *rand.Rand
	left   map[[2]int]float64

	dropped, offered float64
	moves, returns   int
	alerts           []string
}

func newShop(t *testing.T, policy string, workers, partitions int, rate float64) *shop {
	t.Helper()
	s := &shop{
		t: t, cluster: liveOf(t, policy, workers, partitions).cluster, capacity: 150, busy: func(x float64) float64 { return x },
		lie: map[int]func(*Observed){}, at: 1e6, random: rand.New(rand.NewPCG(7, 1)), left: map[[2]int]float64{},
		up: slices.Repeat([]bool{true}, workers), budget: make([]float64, workers),
	}
	for w := range workers {
		s.began = append(s.began, s.at-5000-10*float64(w))
	}
	for p := range partitions {
		s.owner, s.filled, s.rate = append(s.owner, p%workers), append(s.filled, 0), append(s.rate, rate/float64(partitions))
	}
	return s
}

// empty lets worker w have nothing: it has just come back, and its partitions are on the others.
func (s *shop) empty(w int) *shop {
	k := 0
	for p := range s.owner {
		if k%len(s.up) == w {
			k++
		}
		s.owner[p] = k % len(s.up)
		k++
	}
	s.began[w] = s.at
	return s
}

// held returns how many partitions each worker has.
func (s *shop) held() []int {
	n := make([]int, len(s.up))
	for _, w := range s.owner {
		if w >= 0 {
			n[w]++
		}
	}
	return n
}

// serve lets two seconds pass.
func (s *shop) serve() *Observation {
	const step, tick = 2.0, 0.02
	n := len(s.up)
	served, dropped, work, weights := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, len(s.owner))
	for x := s.at; x < s.at+step-tick/2; x += tick {
		for w := range s.budget {
			s.budget[w] = min(s.capacity/4, s.budget[w]+s.capacity*tick)
		}
		for p, w := range s.owner {
			if w < 0 {
				continue
			}
			mean := s.rate[p] * (1 + s.swing*math.Sin(2*math.Pi*x/3)) * tick
			for limit, q := math.Exp(-mean), s.random.Float64(); q > limit; q *= s.random.Float64() {
				s.offered++
				weights[p]++
				cost := 1 + 2*math.Exp((s.filled[p]-x)/20)
				if !s.up[w] || s.budget[w] < cost {
					dropped[w]++
					s.dropped++
					continue
				}
				s.budget[w] -= cost
				served[w]++
				work[w] += cost
			}
		}
	}
	s.at += step
	o := &Observation{Cluster: "c", At: s.at, Version: 1, Owners: slices.Clone(s.owner), Weights: make([]*float64, len(s.owner))}
	for i, w := range s.cluster.Workers {
		x := Observed{AssignedWorker: clusters.AssignedWorker{ID: w.ID, URL: w.URL}, Listed: true, Up: s.up[i]}
		if x.Up {
			requests, drops, age := served[i]/step, dropped[i]/step, s.at-s.began[i]
			x.Requests, x.Drops, x.Age = &requests, &drops, &age
			if busy := s.busy(min(1, work[i]/s.capacity/step)); !math.IsNaN(busy) {
				x.Busy = &busy
			}
		}
		if lie := s.lie[i]; lie != nil {
			lie(&x)
		}
		o.Workers = append(o.Workers, x)
	}
	for p, w := range s.owner {
		if w >= 0 && s.up[w] {
			rate := weights[p] / step
			o.Weights[p] = &rate
		}
	}
	return o
}

// run lets a time pass, with a decision after each step.
func (s *shop) run(seconds float64) *shop {
	s.t.Helper()
	for end := s.at + seconds; s.at < end; {
		o := s.serve()
		if s.live == nil {
			var err error
			if s.live, err = NewLive(s.cluster, o); err != nil {
				s.t.Fatal(err)
			}
		}
		o.Tell(s.levers)
		d := s.live.Decide(o, s.levers)
		s.alerts = d.Alerts
		for _, m := range d.Moves {
			to := slices.IndexFunc(s.cluster.Workers, func(w *language.ClusterWorker) bool { return w.ID == m.To })
			if at, was := s.left[[2]int{m.Partition, to}]; was && s.at-at < 600 {
				s.returns++
			}
			s.left[[2]int{m.Partition, s.owner[m.Partition]}] = s.at
			s.owner[m.Partition], s.filled[m.Partition] = to, s.at
			s.moves++
		}
	}
	return s
}

// count starts to count drops and moves.
func (s *shop) count() *shop {
	s.dropped, s.offered, s.moves, s.returns = 0, 0, 0, 0
	return s
}

func (s *shop) String() string {
	return fmt.Sprintf("%.0f of %.0f dropped, %d moves, %d to and fro, partitions %v", s.dropped, s.offered, s.moves, s.returns, s.held())
}

// lever returns the levers of one worker.
func lever(id string) map[string]clusters.Lever {
	return map[string]clusters.Lever{id: {Worker: id, Reason: "test"}}
}

// A worker that comes back empty gets partitions at least as fast as under v4, and what the others
// drop meanwhile is no more.
func TestV5FillsAnEmptyWorkerAsFastAsV4(t *testing.T) {
	t.Parallel()
	for _, load := range []float64{0.9, 1.13} { // of the two others
		old := newShop(t, "v4", 3, 32, 2*load*150).empty(2).run(120)
		v5 := newShop(t, "v5", 3, 32, 2*load*150).empty(2).run(120)
		if v5.held()[2] < old.held()[2]-1 || v5.dropped > old.dropped || v5.returns > 0 {
			t.Errorf("load %v: v4: %v; v5: %v", load, old, v5)
		}
		t.Logf("load %v: v4: %v; v5: %v", load, old, v5)
	}
}

// A worker whose ban has ended gets partitions again.
func TestV5FillsAWorkerWhoseBanHasEnded(t *testing.T) {
	t.Parallel()
	s := newShop(t, "v5", 3, 32, 250).run(60)
	s.levers.Banned = lever("w2")
	if s.run(40); s.held()[2] != 0 {
		t.Fatalf("while w2 is banned: %v", s)
	}
	s.levers.Banned = nil
	if s.count().run(120); s.held()[2] < 7 || s.dropped > 0 {
		t.Errorf("two minutes after the ban: %v", s)
	}
}

// Workers are drained one after the other. The one before is empty, and takes its share at once.
func TestV5SpreadsARollingDrain(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{3, 100, 250} {
		s := newShop(t, "v5", 3, 32, rate).run(60)
		for i, id := range []string{"w0", "w1", "w2"} {
			s.levers.Draining = lever(id)
			s.run(40)
			held := s.held()
			if held[i] != 0 || max(held[(i+1)%3], held[(i+2)%3]) > 24 {
				t.Errorf("%v requests per second, %s is drained: %v", rate, id, s)
			}
		}
	}
}

// A counter of drops that never resets moves little, drops nothing, and is named.
func TestV5DistrustsDropsThatDoNotFit(t *testing.T) {
	t.Parallel()
	unknown := func(float64) float64 { return math.NaN() }
	for _, drops := range []float64{5, 50, 500} {
		for name, busy := range map[string]func(float64) float64{"told": nil, "unknown": unknown} {
			s := newShop(t, "v5", 4, 64, 360)
			if busy != nil {
				s.busy = busy
			}
			s.run(60)
			s.lie[1] = func(o *Observed) { *o.Drops += drops }
			named := false
			for range 30 {
				s.run(10)
				named = named || slices.ContainsFunc(s.alerts, func(a string) bool { return strings.Contains(a, "worker w1 reports drops") })
			}
			if s.dropped > 0 || s.moves > 16 || s.moves > 0 && !named {
				t.Errorf("%v false drops, busy time %s: %v, named %v", drops, name, s, named)
			}
		}
	}
}

// A worker has come back empty, and the others drop: what they report counts, whatever follows from
// the busy time that they report or do not report.
func TestV5HeedsReportedDrops(t *testing.T) {
	t.Parallel()
	exact := func(x float64) float64 { return x }
	for _, c := range []struct {
		name  string
		rate  float64
		swing float64
		busy  func(float64) float64
	}{
		{"busy is exact", 305, 0, exact},
		{"busy is not told", 305, 0, func(float64) float64 { return math.NaN() }},
		{"busy is always 0", 305, 0, func(float64) float64 { return 0 }},
		{"busy is told by half", 305, 0, func(x float64) float64 { return x / 2 }},
		{"bursts in a step", 280, 0.5, exact},
	} {
		s := newShop(t, "v5", 3, 32, c.rate)
		s.busy, s.swing = c.busy, c.swing
		s.run(60)
		s.up[2] = false
		s.run(60)
		s.up[2], s.began[2] = true, s.at
		s.run(240)
		before := s.returns
		s.count().run(60)
		if s.dropped > 0.003*s.offered || before > 0 {
			t.Errorf("%s: in the end %v, before %d to and fro", c.name, s, before)
		}
	}
}

// Partitions that nobody may serve are counted and named, and those that another worker can take are
// not.
func TestUnservedPartitionsRaiseAnAlert(t *testing.T) {
	t.Parallel()
	s := newShop(t, "v5", 3, 6, 60).run(20)
	for p := range 2 {
		s.live.allowed[p] = []int{s.owner[p]}
	}
	s.up[0], s.up[1] = false, false
	s.run(4)
	named := func() bool {
		return slices.ContainsFunc(s.alerts, func(a string) bool { return strings.HasPrefix(a, "2 partitions are served by nobody (0, 1)") })
	}
	if !named() {
		t.Errorf("have alerts %q", s.alerts)
	}
	s.up[0], s.up[1] = true, true
	if s.run(4); named() {
		t.Errorf("all workers are back: have alerts %q", s.alerts)
	}
}

// While half of the cluster is silent, partitions wait. They do not wait if the addresses refuse
// connections, which proves that the processes have ended, or if an operator knows that they have.
func TestHalfOfTheClusterIsLeftOnceItIsKnownToBeDead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		gone, operate bool
		waits         bool
	}{{"silent", false, false, true}, {"refused", true, false, false}, {"evacuated", false, true, false}} {
		s := newShop(t, "v5", 4, 32, 100).run(40)
		for w := range 2 {
			s.up[w] = false
			s.lie[w] = func(o *Observed) { o.Gone = c.gone }
		}
		if c.operate {
			s.levers.Evacuate = &clusters.Lever{Reason: "the rack has no power"}
		}
		s.run(8)
		if left := s.held()[0] + s.held()[1]; (left == 16) != c.waits || !c.waits && left > 0 {
			t.Errorf("%s: %d partitions are left after 8 s: %v", c.name, left, s)
		}
	}
}

// A worker that has served next to nothing since it began has no measured capacity. It gets its share
// all the same when others die, whatever it held before.
func TestV5FillsAWorkerThatIsNotMeasuredYet(t *testing.T) {
	t.Parallel()
	s := newShop(t, "v5", 4, 64, 0)
	for p := range s.owner {
		s.owner[p] = -1
	}
	for w := range s.began {
		s.began[w] = s.at
	}
	s.run(10)
	for p := range s.rate {
		s.rate[p] = 4
	}
	s.up[0] = false
	s.run(16)
	s.up[0] = true
	s.run(6)
	for w := 1; w < 3; w++ {
		s.up[w], s.lie[w] = false, func(o *Observed) { o.Gone = true }
	}
	if s.run(20); s.held()[0] < 24 {
		t.Errorf("20 s after two of four workers have died: %v", s)
	}
}
