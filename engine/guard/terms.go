package guard

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/planner"
)

const (
	// longestOut is when a run asks again that waits in the store for its turn at a
	// gate. It is called as soon as there is room for it; this is for those that
	// nobody calls.
	longestOut = 5 * time.Minute

	// Beat is how soon the next beat comes that calls runs to gates.
	Beat = 100 * time.Millisecond

	// slowShare is the part of the time-out that a call may take without being slow,
	// however short it was before.
	slowShare = 10
)

// terms returns what bounds the calls of a handler: of its own, for 0, or of the
// service that it calls, for 1. ok is false when nothing does.
func (g *Guard) terms(s *planner.Step, level int) (name string, terms Terms, ok bool) {
	nodes := int(max(1, g.Nodes.Load()))
	if level == 0 {
		most := s.Handler.MaxInFlight
		return s.Path, Terms{most: part(most, nodes), repeats: 1, nodes: nodes}, most > 0
	}
	if s.Service == nil {
		return "", Terms{}, false
	}
	return s.Service.ID, ServiceTerms(s.Service, nodes), true
}

// ServiceTerms are the limits of a service at one of some nodes.
func ServiceTerms(s *tree.Service, nodes int) Terms {
	return Terms{
		most: part(s.MaxInFlight, nodes), adapts: s.Concurrency != "fixed", repeats: s.RetryBudget,
		calm: s.Timeout / slowShare, nodes: nodes,
	}
}

// part is what a node has of a bound for all nodes; 0 for none.
func part(most, nodes int) int {
	if most == 0 {
		return 0
	}
	return max(1, most/nodes)
}

// patience is how long a handler waits at a gate that protects a service before
// its run continues without it: no longer than its attempts would take. A handler
// that is critical waits for as long as it takes, and so does one that would try
// forever.
func patience(s *planner.Step, level int) time.Duration {
	if level == 0 || s.Handler.IsCritical() || s.Retry.Attempts == 0 {
		return 0
	}
	timeout := cmp.Or(s.Handler.Timeout, s.Service.Timeout, time.Second)
	return min(max(time.Duration(min(s.Retry.Attempts, 60))*timeout, time.Second), time.Minute)
}

// EndOf returns what the end of a call says about its service.
func EndOf(s *planner.Step, err error, took time.Duration) CallEnd {
	end := CallEnd{Verdict: CallGood, Kind: s.Path}
	if err != nil {
		end.err = err.Error()
	}
	var status *model.StatusError
	switch {
	case err == nil:
		end.Took = took
	case errors.As(err, &status):
		if status.Status >= 500 || status.Status == http.StatusTooManyRequests ||
			status.Status == http.StatusRequestTimeout || status.Status == http.StatusTooEarly {
			end.Verdict = callBad
		}
		if status.Status == http.StatusServiceUnavailable || status.Status == http.StatusTooManyRequests {
			end.pause, _ = model.RetryDelay(err)
		}
	case errors.Is(err, context.Canceled), model.IsPermanent(err):
		end.Verdict = CallMute
	default:
		end.Verdict = callBad
	}
	return end
}

// Mark begins the cause of a run that waits in the store for its turn at a gate:
// the gate's name and the path of the handler follow.
const Mark = "@"

func gateCause(name, path string) string { return Mark + name + " " + path }

// GateOf tells for which gate a part of a cause is, and for which handler.
func GateOf(part string) (name, path string, ok bool) {
	rest, ok := strings.CutPrefix(part, Mark)
	name, path, _ = strings.Cut(rest, " ")
	return name, path, ok
}
