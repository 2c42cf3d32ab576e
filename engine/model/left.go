package model

import (
	"strings"
)

// A LeftOut is a handler that a run left out although its conditions did not exclude it.
type LeftOut struct {
	Path   string `json:"path"`
	Reason string `json:"reason"` // one of the following
}

// These are the reasons why handlers are left out.
const (
	LeftBySwitch   = "switch"   // an operator had switched it off
	LeftByFallback = "fallback" // fallback had turned it off
	LeftByLimit    = "limit"    // it was over its rate limit
	LeftByWait     = "wait"     // it had waited too long for its service
	LeftByFailure  = "failed"   // all its attempts had failed
)

// LeftReasons lists the reasons why handlers are left out.
func LeftReasons() []string {
	return []string{LeftBySwitch, LeftByFallback, LeftByLimit, LeftByWait, LeftByFailure}
}

// LeftBy returns why a handler was left out, or empty if it was not. A handler that the author's
// condition or rollout excludes is not left out.
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

// FormatLeftOut formats the list for stores, so that a path can be found by text search. Each line
// has a path and a reason, with a line break before the first line, too. It is empty for an empty
// list.
func FormatLeftOut(list []LeftOut) string {
	var b strings.Builder
	for _, l := range list {
		b.WriteString("\n" + l.Path + " " + l.Reason)
	}
	return b.String()
}

// HasLeftOut reports whether a stored list has a path, or one below it. With a reason, it must have this path with this reason.
func HasLeftOut(kept, path, by string) bool {
	if by != "" {
		return strings.Contains(kept, "\n"+path+" "+by)
	}
	return strings.Contains(kept, "\n"+path+" ") || strings.Contains(kept, "\n"+path+"/")
}

// LeftByAuthor reports whether the reason is a condition of the pipeline, and not an operator or
// fallback.
func LeftByAuthor(reason string) bool {
	for _, begin := range []string{"enabled is false", "the stage is left out: ", "branch "} {
		if strings.HasPrefix(reason, begin) {
			return true
		}
	}
	return false
}
