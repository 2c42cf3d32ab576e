package check

import (
	"fmt"
	"maps"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// checkFinally reports what handler i must not do as one of finally. It runs when the rest of the run is over, and the run
// must come to its end.
func (c *walk) checkFinally(i int) {
	h := c.Steps[i].Handler
	refuse := func(field, hint, why string) {
		c.Errorf(h.PlaceOf(field, h.Span).Head(), rules.Finally, hint, "handler %q of finally cannot have %s: %s", h.ID, field, why)
	}
	if h.Await != nil {
		refuse("await", "wait for the event in a stage", "the end of the run would depend on an event")
	}
	if h.Compensate != nil {
		refuse("compensate", "delete it", "nothing comes after it that could fail")
	}
	if h.Detached {
		refuse("detached", "delete it", "nothing comes after it")
	}
	if h.Parks() {
		refuse("on-unknown", "write verify: below on-unknown, or delete it to repeat the call with its key", "the run would not end by itself")
	}
	for _, a := range c.Assignments(i) {
		c.Errorf(a.Key.Span, rules.Finally, "delete it: other handlers of finally read sources."+h.ID+".response",
			"handler %q of finally cannot set shared-state.%s: the result of the run is fixed", h.ID, a.Key.Name)
	}
}

// checkFinallyPlace reports finally where it would never run.
func checkFinallyPlace(p *tree.Pipeline, r *diag.Reporter) {
	if len(p.Finally) > 0 && p.IsCalled() {
		r.Errorf(p.PlaceOf("finally", p.Span).Head(), rules.Finally, "write it into the pipelines that events start; compensate undoes what a call has done",
			"pipeline %q is called by others, and a call has no end of its own", p.ID)
	}
}

// anyEnd returns what finally knows: the run may have ended anywhere, so any value of a name may be the last one, and any
// handler may be missing.
func (c *walk) anyEnd() view {
	out := c.seen
	out.responses = maps.Clone(c.responses)
	for id, o := range out.responses {
		out.responses[id] = o.Absent(fmt.Sprintf("the run may end before %q", id))
	}
	for name, o := range out.known {
		if o != nil && o.Shape&datum.NullShape != 0 && o.Why == "" {
			maybe := *o
			maybe.Why = "the run may end before a handler sets it"
			out.known[name] = &maybe
		}
	}
	return out
}
