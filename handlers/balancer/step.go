package balancer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// maxLine bounds a line of [Serve]: a report of 100,000 partitions fits.
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
	Assignment []int      `json:"assignment"`
	Step       float64    `json:"step_s"`
}

// cluster makes a Cluster of the line.
func (l *initLine) cluster() Cluster {
	c := Cluster{
		Seed: l.Seed, Workers: l.Workers, Partitions: l.Partitions, Allowed: l.Allowed, Assignment: l.Assignment, Step: l.Step,
	}
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

// observeLine is a further line of [Serve].
type observeLine struct {
	Type       string     `json:"type"`
	At         float64    `json:"t"`
	Up         []bool     `json:"up"`
	Draining   []bool     `json:"draining"`
	Requests   []*float64 `json:"requests"`
	Drops      []*float64 `json:"drops"`
	Busy       []*float64 `json:"busy"`
	Age        []*float64 `json:"age_s"`
	Weights    []*float64 `json:"weights"`
	Assignment []int      `json:"assignment"`
}

func (l *observeLine) report() *Report {
	return &Report{
		At: l.At, Up: l.Up, Draining: l.Draining, Requests: orNaN(l.Requests), Drops: orNaN(l.Drops), Busy: orNaN(l.Busy),
		Age: orNaN(l.Age), Weights: orNaN(l.Weights), Assignment: l.Assignment,
	}
}

// orNaN reads null as a number that nobody told.
func orNaN(list []*float64) []float64 {
	out := make([]float64, len(list))
	for i, x := range list {
		out[i] = math.NaN()
		if x != nil {
			out[i] = *x
		}
	}
	return out
}

// Serve lets anyone's simulator drive a policy over lines of JSON. The first line
// describes the cluster and is not answered; each further line is what workers report,
// and is answered by a line with moves. It returns at the end of the input. An error names
// the line; nothing is decided by it.
func Serve(in io.Reader, out io.Writer, policy string, params Params) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 1<<16), maxLine)
	w := bufio.NewWriter(out)
	var p Policy
	var cluster Cluster
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
		moves, err := answer(p, &cluster, lines.Bytes())
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
func answer(p Policy, c *Cluster, line []byte) ([]Move, error) {
	var l observeLine
	if err := readLine(line, &l, &l.Type, "observe"); err != nil {
		return nil, err
	}
	r := l.report()
	if err := r.check(c); err != nil {
		return nil, err
	}
	return p.Decide(r), nil
}

// readLine reads a line of a type.
func readLine(line []byte, into any, have *string, want string) error {
	if err := json.Unmarshal(line, into); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return fmt.Errorf("%s: want %s, have %s", wrong.Field, wrong.Type, wrong.Value)
		}
		return err
	}
	if *have != want {
		return fmt.Errorf("type: want %q, have %q", want, *have)
	}
	return nil
}

// writeMoves writes an answer, at once: who asks waits for it.
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
