package plant

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"procaas/handlers/balancer"
	"procaas/handlers/balancer/clusters"
)

// A Recording has the observations of a live cluster.
type Recording struct {
	about  clusters.Recording
	Params balancer.Params // of its policy

	workers []clusters.AssignedWorker // those of the cluster at the end come first
	seen    []balancer.Observation    // oldest first, all with the same workers
	allowed [][]int
}

// WriteRecording writes a recording as lines: the description of the cluster, then the
// observations.
func WriteRecording(w io.Writer, r clusters.Recording) error {
	observations := r.Observations
	r.Observations = nil
	out := bufio.NewWriter(w)
	head, err := json.Marshal(r)
	if err != nil {
		return err
	}
	for _, line := range append([]json.RawMessage{head}, observations...) {
		var short bytes.Buffer
		if err := json.Compact(&short, line); err != nil {
			return err
		}
		short.WriteByte('\n')
		if _, err := short.WriteTo(out); err != nil {
			return err
		}
	}
	return out.Flush()
}

// maxRecorded bounds a line of a recording, in bytes.
const maxRecorded = 64 << 20

// These bound a recording.
const (
	maxPartitions = 100_000
	maxWorkers    = 10_000
)

// ReadRecording reads lines of [WriteRecording], or of several recordings of one cluster in a row.
// The error names the line.
func ReadRecording(in io.Reader) (*Recording, error) {
	r := &Recording{}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 1<<16), maxRecorded)
	n := 0
	for lines.Scan() {
		n++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		if err := r.take(lines.Bytes()); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	slices.SortStableFunc(r.seen, func(a, b balancer.Observation) int { return cmp.Compare(a.At, b.At) })
	r.seen = slices.CompactFunc(r.seen, func(a, b balancer.Observation) bool { return a.At == b.At })
	if len(r.seen) < 2 {
		return nil, fmt.Errorf("want 2 observations or more, have %d", len(r.seen))
	}
	return r, r.fit()
}

// take decodes a line.
func (r *Recording) take(line []byte) error {
	var kind struct {
		Holders json.RawMessage `json:"holders"`
	}
	if err := json.Unmarshal(line, &kind); err != nil {
		return err
	}
	if kind.Holders == nil {
		if r.about.Cluster == "" {
			return errors.New("want what is known of the cluster first, as balancer record writes it")
		}
		return r.observed(line)
	}
	var about clusters.Recording
	if err := json.Unmarshal(line, &about); err != nil {
		return err
	}
	if r.about.Cluster != "" && (about.Cluster != r.about.Cluster || about.Partitions != r.about.Partitions) {
		return fmt.Errorf("want one cluster, %s of %d partitions, have %s of %d, too", r.about.Cluster, r.about.Partitions, about.Cluster,
			about.Partitions)
	}
	if err := checkAbout(&about); err != nil {
		return err
	}
	params, err := json.Marshal(about.Parameters)
	if err != nil {
		return err
	}
	r.Params = balancer.DefaultParams()
	d := json.NewDecoder(bytes.NewReader(params))
	d.DisallowUnknownFields()
	if err := d.Decode(&r.Params); err != nil {
		return fmt.Errorf("parameters: %w", err)
	}
	r.about = about
	for _, o := range about.Observations {
		if err := r.observed(o); err != nil {
			return err
		}
	}
	return nil
}

// checkAbout refuses a description that no server could have written.
func checkAbout(a *clusters.Recording) error {
	switch {
	case a.Cluster == "":
		return errors.New("cluster: want its id")
	case a.Partitions < 1 || a.Partitions > maxPartitions:
		return fmt.Errorf("partitions: want 1 to %d, have %d", maxPartitions, a.Partitions)
	case len(a.Holders) != a.Partitions:
		return fmt.Errorf("holders: want a list for each of %d partitions, have %d", a.Partitions, len(a.Holders))
	case !(a.Step >= 0.001) || a.Step > 3600:
		return fmt.Errorf("step_s: want 0.001 to 3600, have %v", a.Step)
	case len(a.Workers) > maxWorkers:
		return fmt.Errorf("workers: want %d at most, have %d", maxWorkers, len(a.Workers))
	}
	known := map[string]bool{}
	for _, w := range a.Workers {
		if known[w.ID] || !(w.Capacity >= 0) {
			return fmt.Errorf("workers: want ids of their own and capacities from 0, have %+v", w)
		}
		known[w.ID] = true
	}
	for p, holders := range a.Holders {
		for i, w := range holders {
			if w < 0 || w >= len(a.Workers) || slices.Contains(holders[:i], w) {
				return fmt.Errorf("holders: partition %d: want different workers from 0 to %d, have %v", p, len(a.Workers)-1, holders)
			}
		}
	}
	return nil
}

// observed adds an observation.
func (r *Recording) observed(line []byte) error {
	var o balancer.Observation
	if err := json.Unmarshal(line, &o); err != nil {
		return err
	}
	switch {
	case o.Cluster != r.about.Cluster:
		return fmt.Errorf("want an observation of cluster %s, have one of %q", r.about.Cluster, o.Cluster)
	case !(o.At > 0):
		return fmt.Errorf("t: want Unix seconds, have %v", o.At)
	case len(o.Owners) != r.about.Partitions || len(o.Weights) != r.about.Partitions:
		return fmt.Errorf("want owners and weights of %d partitions, have %d and %d", r.about.Partitions, len(o.Owners), len(o.Weights))
	case len(o.Workers) > maxWorkers:
		return fmt.Errorf("workers: want %d at most, have %d", maxWorkers, len(o.Workers))
	}
	for p, w := range o.Owners {
		if w < -1 || w >= len(o.Workers) {
			return fmt.Errorf("owners: partition %d is on worker %d of %d", p, w, len(o.Workers))
		}
	}
	r.seen = append(r.seen, o)
	return nil
}

// fit converts all observations to the same workers: those of the cluster at the end, then all
// others. Workers that were not there did not answer.
func (r *Recording) fit() error {
	r.workers = slices.Clone(r.about.Workers)
	places := map[string]int{}
	for i, w := range r.workers {
		places[w.ID] = i
	}
	for _, o := range r.seen {
		for _, w := range o.Workers {
			if _, known := places[w.ID]; !known {
				places[w.ID] = len(r.workers)
				r.workers = append(r.workers, w.AssignedWorker)
			}
		}
	}
	if len(r.workers) == 0 || len(r.workers) > maxWorkers {
		return fmt.Errorf("want 1 to %d workers, have %d", maxWorkers, len(r.workers))
	}
	r.allowed = r.about.Holders
	for i := range r.seen {
		o := &r.seen[i]
		workers := make([]balancer.Observed, len(r.workers))
		for k, w := range r.workers {
			workers[k] = balancer.Observed{AssignedWorker: w, Listed: k < len(r.about.Workers)}
		}
		for _, w := range o.Workers {
			k := places[w.ID]
			w.AssignedWorker, w.Listed = r.workers[k], workers[k].Listed
			workers[k] = w
		}
		for p, w := range o.Owners {
			if w >= 0 {
				o.Owners[p] = places[o.Workers[w].ID]
			}
		}
		o.Workers = workers
	}
	r.fill()
	return nil
}

// fill gives partitions without a reported weight their last one, or else their next one. A
// partition that was never reported has none.
func (r *Recording) fill() {
	for p := range r.about.Partitions {
		var last *float64
		for pass := range 2 {
			for k := range r.seen {
				at := k
				if pass == 1 {
					at = len(r.seen) - 1 - k // backwards, for those before the first report
				}
				w := &r.seen[at].Weights[p]
				if *w != nil && (!(**w >= 0) || math.IsInf(**w, 0)) {
					*w = nil
				}
				if *w == nil {
					*w = last
				}
				last = *w
			}
		}
	}
}
