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
	// longestOut is when a run that waits in the store for a gate asks again. It is woken as soon
	// as there is room. So this is for runs that were missed.
	longestOut = 5 * time.Minute

	// Beat is the time until the next beat that wakes runs for gates.
	Beat = 100 * time.Millisecond

	// slowShare makes a call up to a tenth of its timeout never slow.
	slowShare = 10
)

// terms returns the gate limits of a handler: level 0 is its own gate, level 1 that of its service.
// ok is false if there are none.
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

// ServiceTerms returns the limits of a service at one of a number of nodes.
func ServiceTerms(s *tree.Service, nodes int) Terms {
	most := part(s.MaxInFlight, nodes)
	if s.OfNode > 0 {
		most = s.OfNode
	}
	return Terms{
		most: most, adapts: s.Concurrency != "fixed", repeats: s.RetryBudget,
		calm: s.Timeout / slowShare, nodes: nodes,
	}
}

// part returns a node's part of a limit for all nodes; 0 for none.
func part(most, nodes int) int {
	if most == 0 {
		return 0
	}
	return max(1, most/nodes)
}

// patience is how long a handler waits at the gate of a service before its run continues without
// it. It is as long as all of its attempts would take. A critical handler waits without limit, as
// does one that retries forever.
func patience(s *planner.Step, level int) time.Duration {
	if level == 0 || s.Handler.IsCritical() || s.Retry.Attempts == 0 {
		return 0
	}
	timeout := cmp.Or(s.Handler.Timeout, s.Service.Timeout, time.Second)
	return min(max(time.Duration(min(s.Retry.Attempts, 60))*timeout, time.Second), time.Minute)
}

// ErrNoMemory reports that this node had no memory for a reply. It says nothing about the service.
var ErrNoMemory = errors.New("this node has had no memory for it for too long: give nodes more memory (--memory), or lower --max-in-flight")

// EndOf returns what the end of a call says about its service.
func EndOf(s *planner.Step, err error, took time.Duration) CallEnd {
	end := CallEnd{Verdict: CallGood, Kind: s.Path}
	if err != nil {
		end.err = err.Error()
	}
	status, answered := errors.AsType[*model.StatusError](err)
	switch {
	case err == nil:
		end.Took = took
	case answered:
		if status.Status >= 500 || status.Status == http.StatusTooManyRequests ||
			status.Status == http.StatusRequestTimeout || status.Status == http.StatusTooEarly {
			end.Verdict = callBad
		}
		if status.Status == http.StatusServiceUnavailable || status.Status == http.StatusTooManyRequests {
			end.pause, _ = model.RetryDelay(err)
		}
	case errors.Is(err, context.Canceled), errors.Is(err, ErrNoMemory), model.IsPermanent(err):
		end.Verdict = CallMute
	default:
		end.Verdict = callBad
	}
	return end
}

// Mark is the prefix of the cause of a run that waits in the store for a gate. The name of the gate
// and the path of the handler follow.
const Mark = "@"

func gateCause(name, path string) string { return Mark + name + " " + path }

// GateOf returns the gate and the handler of a part of a cause. ok is false if it is not about a
// gate.
func GateOf(part string) (name, path string, ok bool) {
	rest, ok := strings.CutPrefix(part, Mark)
	name, path, _ = strings.Cut(rest, " ")
	return name, path, ok
}
