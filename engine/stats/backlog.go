package stats

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"procaas/engine/core"
	"procaas/engine/credentials"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/store"
)

// This file shows what stands still, and why. Parked runs are not in a queue, so without this a
// long outage would look quiet.

// CauseUnserved is the prefix of the cause of a run whose event no pipeline serves. The definition
// follows. The run waits until a node has another one.
const CauseUnserved = "unserved "

// These are the reasons why runs stand still.
const (
	ParkedService  = "service"  // calls of a service fail, or it has reached its in-flight limit
	ParkedHold     = "hold"     // an operator holds them
	ParkedLifted   = "lifted"   // the hold has ended, and they continue as fast as services and limits allow
	ParkedLoop     = "loop"     // the budget of a pipeline that starts itself more than once in each run
	ParkedMemory   = "memory"   // no node had memory for them to grow
	ParkedLimit    = "limit"    // a rate limit or an in-flight limit
	ParkedRetry    = "retry"    // the time of the retry
	ParkedUnserved = "unserved" // a definition that serves their events
	ParkedTime     = "time"     // a wait
	ParkedEvent    = "event"    // an event
	ParkedState    = "state"    // another state of the key
	ParkedKept     = "kept"     // a run that takes their event; the pipeline is the flow
	ParkedOperator = "operator" // an operator's decision
	ParkedBlocking = "blocking" // they have failed, and block their keys until an operator decides
	ParkedFailed   = "failed"   // they have failed, and block nobody
)

// ParkedRuns are the runs of a pipeline that wait for one reason, on all nodes.
type ParkedRuns struct {
	Pipeline string    `json:"pipeline"`
	Reason   string    `json:"reason" doc:"service: the service fails or is at its limit. hold: an operator holds them. lifted: a hold ended, and they resume as fast as services can handle. limit: a rate limit or a limit of calls. retry: the next attempt. time: a wait. event: an event. state: another state of the key. kept: a run that takes their event, and the pipeline is the flow. operator: a decision. blocking: they failed, and later runs of the key wait. failed: they failed, and no run waits for them."`
	For      string    `json:"for,omitempty" doc:"The service, the path of the control or the path of the handler; absent for other reasons."`
	Runs     int       `json:"runs"`
	Since    time.Time `json:"since" doc:"Since when the first of them has waited."`
	AgeS     float64   `json:"oldest_seconds" doc:"How long it has waited."`
}

// BehindRuns are runs that let those of other pipelines go first, because their pipeline has had
// more than its share of busy nodes.
type BehindRuns struct {
	Pipeline string `json:"pipeline"`
	Runs     int    `json:"runs"` // approximate
}

// A BacklogView shows what waits on all nodes.
type BacklogView struct {
	// Counted is when the runs were counted, null before the first time. With many runs it is rare,
	// because counting takes only a small share of the time.
	Counted *time.Time   `json:"counted" doc:"When the node counted; null before the first time."`
	Waiting int          `json:"waiting" doc:"The runs that wait for their turn, their time or a node."`
	AgeS    float64      `json:"oldest_seconds" doc:"How long the oldest due run has waited."`
	Parked  []ParkedRuns `json:"parked" doc:"The parked runs by cause, the largest group first."`
	// runs that this node accepted and that let those of other pipelines go first
	Behind  []BehindRuns          `json:"behind"`
	Refused []credentials.Refused `json:"refused" doc:"What this node refused in the last minute, because the quota of a token was used up."`
}

// A Backlog is a count of waiting runs with sums. It never changes.
type Backlog struct {
	store.Depth
	counted  time.Time
	services map[string]ParkedRuns // by service
	handlers map[string]int        // by path
}

// NewBacklog makes a Backlog from a count of a store.
func NewBacklog(d store.Depth, now time.Time) *Backlog {
	b := &Backlog{Depth: d, counted: now, services: map[string]ParkedRuns{}, handlers: map[string]int{}}
	for _, r := range d.Aside {
		reason, of, path := causeOf(r.Cause)
		if path != "" {
			b.handlers[path] += r.Runs
		}
		if s := b.services[of]; reason == ParkedService {
			s.Runs += r.Runs
			if s.Since.IsZero() || r.Since.Before(s.Since) {
				s.Since = r.Since
			}
			b.services[of] = s
		}
	}
	return b
}

// causeOf parses a cause: the reason, the service or the path of the control, and the path of the
// handler. Of several causes, one that protects a service comes first, then an operator's.
func causeOf(cause string) (reason, of, path string) {
	reason = ParkedTime
	rank := []string{ParkedService, ParkedHold, ParkedLoop, ParkedMemory, ParkedLimit, ParkedRetry, ParkedTime}
	for part := range strings.SplitSeq(cause, ",") {
		var r, o, p string
		if strings.HasPrefix(part, CauseUnserved) {
			return ParkedUnserved, "", ""
		} else if part == core.CauseMemory {
			r = ParkedMemory
		} else if name, handler, ok := guard.GateOf(part); ok {
			r, o, p = ParkedService, name, handler
			if name == handler {
				r = ParkedLimit
			}
		} else if at, ok := strings.CutSuffix(part, guard.CauseHold); ok {
			r, o, p = ParkedHold, at, at
		} else if at, ok := strings.CutSuffix(part, guard.CauseLoop); ok {
			r, o, p = ParkedLoop, at, at
		} else if at, ok := strings.CutSuffix(part, core.CauseRetry); ok {
			r, o, p = ParkedRetry, at, at
		} else if at, _, ok := strings.Cut(part, " "); ok {
			r, o, p = ParkedLimit, at, at
		} else {
			continue
		}
		if slices.Index(rank, r) < slices.Index(rank, reason) {
			reason, of, path = r, o, p
		}
	}
	return reason, of, path
}

// View returns what waits on all nodes. The receiver may be nil if nothing was counted.
func (b *Backlog) View(c *guard.Controls, now time.Time) BacklogView {
	v := BacklogView{Parked: []ParkedRuns{}, Behind: []BehindRuns{}, Refused: []credentials.Refused{}}
	if b == nil {
		return v
	}
	v.Counted, v.Waiting, v.AgeS = model.Moment(b.counted), b.Waiting, age(b.Oldest, now)
	v.Parked = append(v.Parked, b.parked(c, now, func(p *ParkedRuns) string { return p.For })...)
	slices.SortStableFunc(v.Parked, func(a, b ParkedRuns) int { return cmp.Compare(b.Runs, a.Runs) })
	return v
}

// ForMetrics lists parked runs for metrics, without the things that they wait for, which are too
// many for labels.
func (b *Backlog) ForMetrics(c *guard.Controls, now time.Time) []ParkedRuns {
	if b == nil {
		return nil
	}
	return b.parked(c, now, func(*ParkedRuns) string { return "" })
}

// parked sums the runs that stand still by pipeline, reason and the result of of.
func (b *Backlog) parked(c *guard.Controls, now time.Time, of func(*ParkedRuns) string) []ParkedRuns {
	var out []ParkedRuns
	at := map[[3]string]int{}
	for _, r := range b.Aside {
		p := ParkedRuns{Pipeline: r.Pipeline, Runs: r.Runs, Since: r.Since}
		switch r.Place {
		case store.AsideParked:
			p.Reason, p.For, _ = causeOf(r.Cause)
			if p.Reason == ParkedHold && !c.InForce(p.For+guard.CauseHold, now) {
				p.Reason = ParkedLifted
			}
		case store.AsideAwaits:
			p.Reason = ParkedEvent
		default:
			p.Reason = string(r.Place) // operator, state, kept, blocking, failed have the same names here
		}
		key := [3]string{p.Pipeline, p.Reason, of(&p)}
		p.For = key[2]
		i, known := at[key]
		if !known {
			at[key] = len(out)
			out = append(out, p)
			continue
		}
		out[i].Runs += p.Runs
		if p.Since.Before(out[i].Since) {
			out[i].Since = p.Since
		}
	}
	for i := range out {
		out[i].AgeS = age(out[i].Since, now)
	}
	return out
}

// ParkedFor returns how many runs are parked because of a service.
func (b *Backlog) ParkedFor(service string) ParkedRuns {
	if b == nil {
		return ParkedRuns{}
	}
	return b.services[service]
}

// ParkedAt returns how many runs are parked at a handler.
func (b *Backlog) ParkedAt(path string) int {
	if b == nil {
		return 0
	}
	return b.handlers[path]
}

// StoppedAt returns how many runs the control of a path has parked, by a hold or a limit.
func (b *Backlog) StoppedAt(path string) (n int) {
	for _, r := range b.Aside {
		if reason, of, _ := causeOf(r.Cause); of == path && (reason == ParkedHold || reason == ParkedLimit) {
			n += r.Runs
		}
	}
	return n
}
