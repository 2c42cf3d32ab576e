package balancer

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// A stage is a small cluster for stories: workers serve what they can and drop the
// rest, and apply moves at once.
type stage struct {
	policy   Policy
	where    []int
	weights  []float64
	capacity []float64
	down     []bool
	draining []bool
	began    []float64
	at       float64
}

// TestStories tells what each policy does, in testdata/balancer.
func TestStories(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "../../testdata/balancer/stories", func(t *testing.T, path string) {
		var s *stage
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "cluster":
				s = newStage(t, d)
				return s.String()
			case "weights":
				s.weights = numbers(t, d, "of", s.weights)
				return s.String()
			case "capacity":
				s.capacity = numbers(t, d, "of", s.capacity)
				return s.String()
			case "down", "up", "drain":
				for _, w := range numbers(t, d, "workers", nil) {
					s.turn(int(w), d.Cmd)
				}
				return s.String()
			case "run":
				return s.run(numbers(t, d, "seconds", []float64{10})[0])
			}
			t.Fatalf("%s: no command %s", d.Pos, d.Cmd)
			return ""
		})
	})
}

// newStage reads policy=v4 workers=3 weights=(10,20,…) capacity=100 allowed=(01,02,12,…) at=(0,2,1,…).
func newStage(t *testing.T, d *datadriven.TestData) *stage {
	t.Helper()
	var name string
	var workers int
	d.ScanArgs(t, "policy", &name)
	d.ScanArgs(t, "workers", &workers)
	s := &stage{weights: numbers(t, d, "weights", nil)}
	capacity := numbers(t, d, "capacity", []float64{100})[0]
	c := Cluster{Seed: 1, Workers: workers, Partitions: len(s.weights), Step: 2}
	for w := range workers {
		s.capacity = append(s.capacity, capacity)
		s.began = append(s.began, -1e6-float64(100*w))
	}
	s.down, s.draining = make([]bool, workers), make([]bool, workers)
	var allowed []string
	if d.HasArg("allowed") {
		for _, a := range d.CmdArgs {
			if a.Key == "allowed" {
				allowed = a.Vals
			}
		}
	}
	for p := range s.weights {
		var may []int
		for w := range workers {
			if allowed == nil || strings.Contains(allowed[p], strconv.Itoa(w)) {
				may = append(may, w)
			}
		}
		c.Allowed = append(c.Allowed, may)
		c.Assignment = append(c.Assignment, may[p%len(may)])
	}
	for p, w := range numbers(t, d, "at", nil) {
		c.Assignment[p] = int(w)
	}
	s.where = slices.Clone(c.Assignment)
	var err error
	if s.policy, err = New(name, c, DefaultParams()); err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	return s
}

// numbers reads an argument such as weights=(1,2,3).
func numbers(t *testing.T, d *datadriven.TestData, key string, preset []float64) []float64 {
	t.Helper()
	for _, a := range d.CmdArgs {
		if a.Key != key {
			continue
		}
		var out []float64
		for _, v := range a.Vals {
			x, err := strconv.ParseFloat(v, 64)
			if err != nil {
				t.Fatalf("%s: %s: %v", d.Pos, key, err)
			}
			out = append(out, x)
		}
		return out
	}
	return preset
}

func (s *stage) turn(w int, how string) {
	switch how {
	case "down":
		s.down[w] = true
	case "drain":
		s.draining[w] = true
	case "up":
		s.down[w], s.draining[w], s.began[w] = false, false, s.at
	}
}

// run lets time pass, and tells the moves.
func (s *stage) run(seconds float64) string {
	var b strings.Builder
	for end := s.at + seconds; s.at < end; {
		s.at += 2
		for _, m := range s.policy.Decide(s.report()) {
			fmt.Fprintf(&b, "%3.0fs partition %d: %d → %d, %s\n", s.at, m.Partition, s.where[m.Partition], m.To, m.Reason)
			s.where[m.Partition] = m.To
		}
	}
	return b.String() + s.String()
}

func (s *stage) report() *Report {
	n := len(s.capacity)
	r := &Report{
		At: s.at, Up: make([]bool, n), Draining: slices.Clone(s.draining), Requests: make([]float64, n), Drops: make([]float64, n),
		Busy: make([]float64, n), Age: make([]float64, n), Weights: make([]float64, len(s.weights)), Assignment: slices.Clone(s.where),
	}
	for w, load := range s.load() {
		r.Up[w] = !s.down[w]
		if s.down[w] {
			continue
		}
		r.Requests[w] = min(load, s.capacity[w])
		r.Drops[w], r.Busy[w], r.Age[w] = load-r.Requests[w], r.Requests[w]/s.capacity[w], s.at-s.began[w]
	}
	for p, w := range s.where {
		r.Weights[p] = math.NaN()
		if r.Up[w] {
			r.Weights[p] = s.weights[p]
		}
	}
	return r
}

func (s *stage) load() []float64 {
	load := make([]float64, len(s.capacity))
	for p, w := range s.where {
		load[w] += s.weights[p]
	}
	return load
}

// String shows the load and the partitions of each worker.
func (s *stage) String() string {
	var b strings.Builder
	for w, load := range s.load() {
		fmt.Fprintf(&b, "worker %d: %3.0f of %3.0f", w, load, s.capacity[w])
		switch {
		case s.down[w]:
			b.WriteString(", down")
		case s.draining[w]:
			b.WriteString(", draining")
		case load > s.capacity[w]:
			b.WriteString(", drops")
		}
		for p, where := range s.where {
			if where == w {
				fmt.Fprintf(&b, " [%d]", p)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
