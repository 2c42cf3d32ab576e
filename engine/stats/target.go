package stats

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/definitions"
	"procaas/engine/model"
)

// This file compares durations with their targets. The p99 is over its target exactly when more than one in a hundred took
// longer, so late ones are counted one by one, and nothing depends on the bins of the quantiles.

const (
	// objective is the share of runs that should keep their target.
	objective = 0.99

	// lateNeeded is how many late runs of the last ten minutes an alert needs, so that one slow run of a quiet pipeline is none.
	lateNeeded = 3
)

// A TargetView is the target of a pipeline or stage, and whether it is kept.
type TargetView struct {
	TargetMS  int64      `json:"target_ms" doc:"The target in milliseconds."`
	Objective float64    `json:"objective" doc:"The share of runs that should keep it."`
	Kept      *bool      `json:"kept" doc:"Whether the p99 of the last ten minutes on this node is within the target; null without any."`
	Week      BudgetView `json:"week" doc:"The error budget of the present day and the six days before it, by UTC, of all nodes together."`
}

// A BudgetView is an error budget: how many runs may be late.
type BudgetView struct {
	Ended int64    `json:"ended" doc:"How many had a target."`
	Late  int64    `json:"late" doc:"How many of them took longer. Each counts by the target that held then."`
	Left  *float64 `json:"left" doc:"The share of the budget that is left: 1 if none was late, 0 if as many as may be; negative beyond that, null without any."`
}

// add adds what another node has seen. The budget is that of all nodes already.
func (t *TargetView) add(o *TargetView, ten Span) {
	if o.Week.Ended > t.Week.Ended { // it has heard of more
		t.Week = o.Week
	}
	t.Kept = kept(ten)
}

// Text formats the target.
func (t *TargetView) Text() string { return (time.Duration(t.TargetMS) * time.Millisecond).String() }

// IsMissed reports whether the p99 of the last ten minutes is over the target.
func (t *TargetView) IsMissed() bool { return t.Kept != nil && !*t.Kept }

// kept reports whether a p99 is within its target.
func kept(s Span) *bool {
	if s.Ended == 0 {
		return nil
	}
	return new(!isOver(s))
}

func isOver(s Span) bool { return float64(s.Late) > (1-objective)*float64(s.Ended)+1e-9 }

// target returns the view of a target; nil without one.
func (s *Stats) target(path string, target time.Duration, ten Span, now time.Time) *TargetView {
	if target == 0 {
		return nil
	}
	used := s.used.budget(path, now)
	v := &TargetView{
		TargetMS: target.Milliseconds(), Objective: objective, Kept: kept(ten), Week: BudgetView{Ended: used.timed, Late: used.late},
	}
	if used.timed > 0 {
		v.Week.Left = new(1 - float64(used.late)/((1-objective)*float64(used.timed)))
	}
	return v
}

// A Target is the target of a pipeline or stage of a definition, with its budget.
type Target struct {
	Path   string // of a pipeline or stage
	Owner  string
	Length time.Duration
	Left   *float64 // as in [BudgetView]
}

// Targets lists the targets of a definition with what is left of their budgets.
func (s *Stats) Targets(d *definitions.Definition, now time.Time) (out []Target) {
	eachTarget(d, func(path, owner string, target time.Duration) {
		out = append(out, Target{path, owner, target, s.target(path, target, Span{}, now).Week.Left})
	})
	return out
}

func eachTarget(d *definitions.Definition, do func(path, owner string, target time.Duration)) {
	for _, p := range d.Plans {
		if p.Pipeline.Target > 0 {
			do(p.Pipeline.ID, p.Pipeline.Owner, p.Pipeline.Target)
		}
		for _, g := range p.Stages {
			if g.Declared.Target > 0 {
				do(p.Pipeline.ID+"/"+g.ID, p.Pipeline.Owner, g.Declared.Target)
			}
		}
	}
}

// A LateRuns says that the p99 of a pipeline or stage is over its target.
type LateRuns struct {
	Path    string
	Owner   string
	Target  time.Duration
	Ten     Span     // the last ten minutes
	Left    *float64 // as in [BudgetView]
	Handler string   // that cost most of the time in most of the slowest runs; empty if unknown
}

// Text says how late the runs are.
func (l *LateRuns) Text() string {
	text := fmt.Sprintf("%d of %d took longer than the target of %s in the last ten minutes", l.Ten.Late, l.Ten.Ended, l.Target)
	if l.Handler != "" {
		text += "; the slowest runs spent their time in " + l.Handler
	}
	if l.Left != nil {
		text += fmt.Sprintf("; %.0f %% of the error budget of the week is left", 100**l.Left)
	}
	return text
}

// Late lists the targets that this node has missed in the last ten minutes.
func (s *Stats) Late(d *definitions.Definition, now time.Time) (out []LateRuns) {
	eachTarget(d, func(path, owner string, target time.Duration) {
		ten := s.tenMinutes(path, now)
		if ten.Late >= lateNeeded && isOver(ten) {
			out = append(out, LateRuns{
				Path: path, Owner: owner, Target: target, Ten: ten, Left: s.target(path, target, ten, now).Week.Left,
				Handler: s.costliest(path, now.Add(-10*time.Minute)),
			})
		}
	})
	return out
}

// tenMinutes returns the durations of a path that its target is about.
func (s *Stats) tenMinutes(path string, now time.Time) Span {
	pipeline, stage, isStage := strings.Cut(path, "/")
	p := s.took.find(tookPath{pipeline, stage})
	if p == nil {
		return Span{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &p.accepted.ten
	if isStage {
		w = &p.begun.ten
	}
	return sum(w, len(w.slots), 0, now)
}

// costliest returns the handler at or below a path that took longest in most of the slowest runs since a time.
func (s *Stats) costliest(path string, since time.Time) string {
	times := map[string]int{}
	for _, r := range s.SlowRuns(model.PipelineOf(path), since) {
		if strings.HasPrefix(r.Handler, path+"/") {
			times[r.Handler]++
		}
	}
	best := ""
	for h, n := range times {
		if n > times[best] || n == times[best] && h < best {
			best = h
		}
	}
	return best
}

func newTargetGauges() *liveGauges[Target] {
	labels := []string{"pipeline", "stage", "owner"}
	return &liveGauges[Target]{
		labels: func(t *Target) []string {
			pipeline, stage, _ := strings.Cut(t.Path, "/")
			return []string{pipeline, stage, t.Owner}
		},
		gauges: []liveGauge[Target]{
			{
				prometheus.NewDesc("procaas_target_seconds", "Target of the runs of a pipeline, or of a stage.", labels, nil),
				func(t *Target) (float64, bool) { return t.Length.Seconds(), true },
			}, {
				prometheus.NewDesc("procaas_target_budget_left", "Share of the error budget of the last seven days that is left, over all nodes: "+
					"1 if no run was late, 0 if one in a hundred was, negative beyond that. Absent without runs.", labels, nil),
				func(t *Target) (float64, bool) {
					if t.Left == nil {
						return 0, false
					}
					return *t.Left, true
				},
			},
		},
	}
}
