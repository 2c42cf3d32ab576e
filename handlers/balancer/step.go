package balancer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// maxLine bounds a line of [Serve]. A report of 100,000 partitions fits.
const maxLine = 64 << 20

// initLine is the first line of [Serve].
type initLine struct {
	Type       string     `json:"type"`
	Seed       uint64     `json:"seed"`
	Workers    int        `json:"workers"`
	Partitions int        `json:"partitions"`
	Capacity   []*float64 `json:"capacity"`
	Zone       []any      `json:"zone"` // numbers or names
	Allowed    [][]int    `json:"allowed"`
	Assignment []*int     `json:"assignment"`
	Step       float64    `json:"step_s"`
}

// cluster converts the line to a Cluster.
func (l *initLine) cluster() Cluster {
	c := Cluster{Seed: l.Seed, Workers: l.Workers, Partitions: l.Partitions, Allowed: l.Allowed, Step: l.Step}
	c.Assignment, _ = c.place(l.Assignment)
	for _, x := range l.Capacity {
		capacity := 0.0
		if x != nil {
			capacity = clean(*x)
		}
		c.Capacity = append(c.Capacity, capacity)
	}
	numbers := map[string]int{}
	for _, z := range l.Zone {
		name := fmt.Sprint(z)
		if _, known := numbers[name]; !known {
			numbers[name] = len(numbers)
		}
		c.Zone = append(c.Zone, numbers[name])
	}
	return c
}

// observeLine is any later line of [Serve].
type observeLine struct {
	Type       string     `json:"type"`
	At         float64    `json:"t"`
	Up         []bool     `json:"up"`
	Gone       []bool     `json:"gone"`
	Draining   []bool     `json:"draining"`
	Requests   []*float64 `json:"requests"`
	Drops      []*float64 `json:"drops"`
	Busy       []*float64 `json:"busy"`
	Age        []*float64 `json:"age_s"`
	Weights    []*float64 `json:"weights"`
	Assignment []*int     `json:"assignment"`
}

// report converts the line for policies, and lists the partitions without a worker. Missing lists
// mean unknown, but up and assignment are required.
func (l *observeLine) report(c *Cluster) (r *Report, lost []int) {
	r = &Report{
		At: l.At, Up: l.Up, Gone: l.Gone, Draining: l.Draining, Requests: orNaN(l.Requests, c.Workers), Drops: orNaN(l.Drops, c.Workers),
		Busy: orNaN(l.Busy, c.Workers), Age: orNaN(l.Age, c.Workers), Weights: orNaN(l.Weights, c.Partitions),
	}
	if r.Draining == nil {
		r.Draining = make([]bool, c.Workers)
	}
	r.Assignment, lost = c.place(l.Assignment)
	return r, lost
}

// place converts an assignment in which -1 and null mean no worker. Policies know no such state, so
// these partitions are shown at an allowed worker.
func (c *Cluster) place(assignment []*int) (out, lost []int) {
	out = make([]int, len(assignment))
	for p, w := range assignment {
		switch {
		case w != nil && *w != -1:
			out[p] = *w
			continue
		case p < len(c.Allowed) && len(c.Allowed[p]) > 0:
			out[p] = c.Allowed[p][0]
		}
		lost = append(lost, p)
	}
	return out, lost
}

// adopt adds moves for partitions without a worker, each to the worker with the lowest utilization
// by weights. It does not change a move of the policy.
func adopt(c *Cluster, r *Report, lost []int, moves []Move) []Move {
	if len(lost) == 0 {
		return moves
	}
	load, taken, nobody := make([]float64, c.Workers), map[int]bool{}, map[int]bool{}
	for _, p := range lost {
		nobody[p] = true
	}
	for _, m := range moves {
		taken[m.Partition] = true
		load[m.To] += clean(r.Weights[m.Partition])
	}
	for p, w := range r.Assignment {
		if !taken[p] && !nobody[p] {
			load[w] += clean(r.Weights[p])
		}
	}
	for _, p := range lost {
		best, least := -1, math.Inf(1)
		for _, w := range c.Allowed[p] {
			room := 1.0
			if len(c.Capacity) > 0 && c.Capacity[w] > 0 {
				room = c.Capacity[w]
			}
			if full := load[w] / room; !taken[p] && r.Up[w] && !r.Draining[w] && full < least {
				best, least = w, full
			}
		}
		if best < 0 {
			continue
		}
		load[best] += max(clean(r.Weights[p]), 1e-9)
		moves = append(moves, Move{Partition: p, To: best, Reason: "nobody had it"})
	}
	return moves
}

// orNaN converts null and missing values to NaN.
func orNaN(list []*float64, n int) []float64 {
	if list == nil {
		return slices.Repeat([]float64{math.NaN()}, n)
	}
	out := make([]float64, len(list))
	for i, x := range list {
		out[i] = math.NaN()
		if x != nil {
			out[i] = *x
		}
	}
	return out
}

// Serve lets any simulator drive a policy over lines of JSON. The first line describes the cluster
// and gets no answer. Each further line is a report, and the answer is a line with moves. NaN and
// infinities are read as null. Serve returns at the end of the input. An error names the line, on
// which nothing is decided.
func Serve(in io.Reader, out io.Writer, policy string, params Params) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 1<<16), maxLine)
	w := bufio.NewWriter(out)
	var p Policy
	var cluster Cluster
	last := math.Inf(-1)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		if p == nil {
			var first initLine
			err := readLine(lines.Bytes(), &first, &first.Type, "init")
			if err == nil {
				cluster = first.cluster()
				p, err = New(policy, cluster, params)
			}
			if err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
			continue
		}
		moves, err := answer(p, &cluster, &last, lines.Bytes())
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if err := writeMoves(w, moves); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}

// answer decides about one line.
func answer(p Policy, c *Cluster, last *float64, line []byte) ([]Move, error) {
	var l observeLine
	if err := readLine(line, &l, &l.Type, "observe"); err != nil {
		return nil, err
	}
	r, lost := l.report(c)
	if err := r.check(c); err != nil {
		return nil, err
	}
	if r.At < *last {
		return nil, fmt.Errorf("t: want %v or more, the time of the line before, have %v", *last, r.At)
	}
	*last = r.At
	return adopt(c, r, lost, p.Decide(r)), nil
}

// readLine decodes a line.
func readLine(line []byte, into any, have *string, want string) error {
	if err := json.Unmarshal(numbersOnly(line), into); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return fmt.Errorf("%s: want %s, have %s", wrong.Field, wrong.Type, wrong.Value)
		}
		return err
	}
	if *have != want {
		return fmt.Errorf("type: want %q, have %q", want, *have)
	}
	return nil
}

// notNumbers are the words that JSON libraries of other languages write for special floats, longer
// ones first.
var notNumbers = []string{"-Infinity", "Infinity", "NaN"}

// numbersOnly replaces NaN and infinities outside of strings by null, so that a worker's nonsense
// does not stop the balancer. It returns other lines unchanged.
func numbersOnly(line []byte) []byte {
	var out []byte
	quoted, from := false, 0
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '-' || c == 'I' || c == 'N'):
			for _, word := range notNumbers {
				if bytes.HasPrefix(line[i:], []byte(word)) {
					out = append(append(out, line[from:i]...), "null"...)
					i, from = i+len(word)-1, i+len(word)
					break
				}
			}
		}
	}
	if from == 0 {
		return line
	}
	return append(out, line[from:]...)
}

// writeMoves writes an answer and flushes it, because the caller waits for it.
func writeMoves(w *bufio.Writer, moves []Move) error {
	if moves == nil {
		moves = []Move{}
	}
	line, err := json.Marshal(struct {
		Moves []Move `json:"moves"`
	}{moves})
	if err != nil {
		return err
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return err
	}
	return w.Flush()
}
