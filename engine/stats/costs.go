package stats

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/store"
)

// This file says what pipelines, owners and handlers cost.

// These are what costs are grouped by.
const (
	ByPipeline = "pipeline"
	ByOwner    = "owner"
	ByHandler  = "handler"
)

// These are the names of costs of what is not in the definition.
const (
	costNodes   = "(nodes)"   // processor time while nothing was called
	costUnknown = "(unknown)" // the owner of what the definition no longer has
)

// A Cost is what a pipeline, an owner or a handler has cost on a day.
type Cost struct {
	Day          string  `json:"day" doc:"The day, by UTC."`
	Name         string  `json:"name" doc:"The pipeline, owner or handler. (nodes) has the processor time of nodes that called nothing, (unknown) what the definition no longer has."`
	Calls        int64   `json:"calls" doc:"Attempts of handlers."`
	CallSeconds  float64 `json:"call_seconds" doc:"The time of these calls, added up."`
	RequestBytes int64   `json:"request_bytes" doc:"The size of the bodies that these calls sent."`
	Bytes        int64   `json:"bytes" doc:"What their replies took in the memory of nodes."`
	CPUSeconds   float64 `json:"cpu_seconds" doc:"The processor time of nodes, divided by calls. It is an estimate."`
	Runs         int64   `json:"runs" doc:"Runs that ended. Each is a row of the store."`
	StoredBytes  int64   `json:"stored_bytes" doc:"The size of the checkpoints that these runs left in the store."`
}

// A costSeries are the metrics of what the calls of a pipeline cost.
type costSeries struct{ seconds, sent, got prometheus.Counter }

// Called counts a call for the costs of its handler: how long it took, and the bytes that it sent and got.
func (s *Stats) Called(path string, took time.Duration, sent, got int64, now time.Time) {
	p := s.Path(path)
	c := p.costs.Load()
	if c == nil {
		of := model.PipelineOf(path)
		c = &costSeries{s.Metrics.CallSeconds.WithLabelValues(of), s.Metrics.RequestBytes.WithLabelValues(of), s.Metrics.ReplyBytes.WithLabelValues(of)}
		p.costs.Store(c)
	}
	c.seconds.Add(took.Seconds())
	c.sent.Add(float64(sent))
	c.got.Add(float64(got))
	s.used.add(path, now, store.UseCounts{Calls: 1, CallMicros: took.Microseconds(), RequestBytes: sent, Bytes: got})
}

// Left counts an ended run for the costs of its pipeline.
func (s *Stats) Left(pipeline string, bytes int, now time.Time) {
	s.Metrics.StoredBytes.WithLabelValues(pipeline).Add(float64(bytes))
	s.used.add(pipeline, now, store.UseCounts{Runs: 1, StoredBytes: int64(bytes)})
}

// SpendCPU divides processor time of this node among the handlers that were called since the last SendUsage, by their calls.
// Without calls it is that of the nodes.
func (s *Stats) SpendCPU(spent time.Duration, now time.Time) {
	u := &s.used
	u.mu.Lock()
	calls := int64(0)
	for _, counts := range u.pending {
		calls += counts.Calls
	}
	for at, counts := range u.pending {
		if counts.Calls > 0 {
			part := spent.Microseconds() * counts.Calls / calls
			counts.CPUMicros += part
			s.Metrics.CPUSeconds.WithLabelValues(model.PipelineOf(at.path)).Add(float64(part) / 1e6)
		}
	}
	u.mu.Unlock()
	if calls == 0 {
		s.Metrics.CPUSeconds.WithLabelValues("").Add(spent.Seconds())
		u.add("", now, store.UseCounts{CPUMicros: spent.Microseconds()})
	}
}

// A CostSum adds up costs by day and name.
type CostSum struct {
	by     string
	owners map[string]string // by path
	sums   map[[2]string]*store.UseCounts
}

// NewCostSum makes a sum for a definition, which says who owns what.
func NewCostSum(d *definitions.Definition, by string) *CostSum {
	c := &CostSum{by: by, owners: map[string]string{}, sums: map[[2]string]*store.UseCounts{}}
	for _, p := range d.Plans {
		c.owners[p.Pipeline.ID] = p.Pipeline.Owner
		for _, s := range p.Written {
			c.owners[s.Path] = s.Owner
		}
	}
	return c
}

// Add adds what a path has used.
func (c *CostSum) Add(u store.Use) {
	handler := strings.Count(u.Path, "/") >= 2
	name := u.Path
	switch {
	case u.Path == "":
		name = costNodes
	case c.by == ByPipeline:
		name = model.PipelineOf(u.Path)
	case c.by == ByOwner:
		owner, ok := c.owners[u.Path]
		if !ok {
			owner, ok = c.owners[model.PipelineOf(u.Path)]
		}
		name = cmp.Or(owner, "(none)")
		if !ok {
			name = costUnknown
		}
	case !handler:
		return
	}
	at := [2]string{u.Day, name}
	if c.sums[at] == nil {
		c.sums[at] = new(store.UseCounts)
	}
	c.sums[at].Add(u.UseCounts)
}

// Costs lists the sums: the latest day first, and of a day those with the most time of calls.
func (c *CostSum) Costs() []Cost {
	out := make([]Cost, 0, len(c.sums))
	for at, u := range c.sums {
		if u.Calls+u.CPUMicros+u.Runs == 0 {
			continue // only counted for a target
		}
		out = append(out, Cost{
			Day: at[0], Name: at[1], Calls: u.Calls, CallSeconds: float64(u.CallMicros) / 1e6, RequestBytes: u.RequestBytes,
			Bytes: u.Bytes, CPUSeconds: float64(u.CPUMicros) / 1e6, Runs: u.Runs, StoredBytes: u.StoredBytes,
		})
	}
	slices.SortFunc(out, func(a, b Cost) int {
		return cmp.Or(cmp.Compare(b.Day, a.Day), cmp.Compare(b.CallSeconds, a.CallSeconds), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// CostsSince is the first of the last days, the present one included.
func CostsSince(now time.Time, days int) string { return dayText(dayOf(now) - int64(days) + 1) }
