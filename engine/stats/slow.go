package stats

import (
	"cmp"
	"slices"
	"time"
)

// This file remembers the slowest runs, so that nobody has to search all runs of a store for them.

const (
	slowSlots = 24 // of hourSlot: two hours
	slowMost  = 10 // of a pipeline in each slot
)

// SlowKept is how long a node remembers slow runs.
const SlowKept = slowSlots * hourSlot

// A SlowRun is one of the slowest runs that succeeded on this node.
type SlowRun struct {
	Run      string    `json:"run"`
	Pipeline string    `json:"pipeline"`
	Key      string    `json:"key"`
	Ended    time.Time `json:"ended" doc:"When the run ended."`
	TookMS   int64     `json:"took_ms" doc:"How long the run took from the acceptance of its event, in milliseconds."`
	TurnMS   int64     `json:"turn_ms" doc:"How much of that it waited until it began."`

	TargetMS int64 `json:"target_ms,omitempty" doc:"The target of the pipeline when the run ended, in milliseconds; absent without one."`

	Handler   string `json:"handler" doc:"The handler that took longest, with its attempts and the waits between them; empty without one."`
	HandlerMS int64  `json:"handler_ms" doc:"How long this handler took."`
	Attempts  int    `json:"attempts" doc:"Its attempts."`
}

// Slow remembers a run if it is one of the slowest. The run has been counted by Took.
func (s *Stats) Slow(r SlowRun, now time.Time) {
	p := s.took.find(tookPath{pipeline: r.Pipeline})
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	runs := p.slow.at(now)
	i, _ := slices.BinarySearchFunc(*runs, r, func(a, b SlowRun) int { return cmp.Compare(b.TookMS, a.TookMS) })
	if i == slowMost {
		return
	}
	*runs = slices.Insert((*runs)[:min(len(*runs), slowMost-1)], min(i, slowMost-1), r)
}

// SlowRuns lists the slowest runs that ended since a time, the slowest first. An empty pipeline means all.
func (s *Stats) SlowRuns(pipeline string, since time.Time) []SlowRun {
	out := []SlowRun{}
	s.took.mu.RLock()
	defer s.took.mu.RUnlock()
	for path, p := range s.took.of {
		if path.stage == "" && (pipeline == "" || path.pipeline == pipeline) {
			out = p.addSlow(out, since)
		}
	}
	slices.SortFunc(out, func(a, b SlowRun) int { return cmp.Or(cmp.Compare(b.TookMS, a.TookMS), cmp.Compare(a.Run, b.Run)) })
	return out
}

// addSlow adds the slowest runs that ended since a time.
func (p *pathTook) addSlow(out []SlowRun, since time.Time) []SlowRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, slot := range p.slow.slots {
		if slot == nil {
			continue
		}
		for _, r := range slot.counts {
			if !r.Ended.Before(since) {
				out = append(out, r)
			}
		}
	}
	return out
}
