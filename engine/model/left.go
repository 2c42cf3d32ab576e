package model

import (
	"strings"
)

// A LeftOut is a handler that a run has gone on without, though its conditions did not say so.
type LeftOut struct {
	Path   string `json:"path"`
	Reason string `json:"reason"` // one of the following
}

// Why handlers are left out.
const (
	LeftBySwitch   = "switch"   // an operator had switched it off
	LeftByFallback = "fallback" // it was out of the flow by itself
	LeftByLimit    = "limit"    // it was over its rate limit
	LeftByWait     = "wait"     // it had waited for its service for too long
	LeftByFailure  = "failed"   // all its attempts had failed
)

// LeftBy tells by what a handler was left out; empty for one that was not. What an author has
// said, by a condition or a rollout, leaves nothing out.
func LeftBy(outcome, reason string) string {
	if outcome == OutcomeFailed {
		return LeftByFailure
	}
	if outcome != OutcomeSkipped {
		return ""
	}
	for _, r := range []struct{ begins, by string }{
		{"switched off at ", LeftBySwitch},
		{"fallback", LeftByFallback},
		{"over its rate limit ", LeftByLimit},
		{"over the limit ", LeftByLimit},
		{"left out after ", LeftByWait},
	} {
		if strings.HasPrefix(reason, r.begins) {
			return r.by
		}
	}
	return ""
}

// FormatLeftOut writes the list as stores keep it, so that a path can be found by its text:
// each line is a path and a reason, with a line break before the first, too. It is empty for none.
func FormatLeftOut(list []LeftOut) string {
	var b strings.Builder
	for _, l := range list {
		b.WriteString("\n" + l.Path + " " + l.Reason)
	}
	return b.String()
}

// HasLeftOut reports whether a list that is kept has a path, or one below it.
func HasLeftOut(kept, path string) bool {
	return strings.Contains(kept, "\n"+path+" ") || strings.Contains(kept, "\n"+path+"/")
}

// LeftByAuthor tells by its reason whether a handler is left out by a condition of
// the pipeline, and not by an operator or by itself.
func LeftByAuthor(reason string) bool {
	for _, begin := range []string{"enabled is false", "the stage is left out: ", "branch "} {
		if strings.HasPrefix(reason, begin) {
			return true
		}
	}
	return false
}
