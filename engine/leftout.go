package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// This file is about runs that have succeeded without all that they should have done: handlers
// that are not critical were left out. It counts them, and lets a run make one up.

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

// leftBy tells by what a handler was left out; empty for one that was not. What an author has
// said, by a condition or a rollout, leaves nothing out.
func leftBy(outcome, reason string) string {
	if outcome == OutcomeFailed {
		return LeftByFailure
	}
	if outcome != OutcomeSkipped {
		return ""
	}
	for _, r := range []struct{ begins, by string }{
		{"switched off at ", LeftBySwitch}, {"fallback", LeftByFallback}, {"over its rate limit ", LeftByLimit},
		{"over the limit ", LeftByLimit}, {"left out after ", LeftByWait},
	} {
		if strings.HasPrefix(reason, r.begins) {
			return r.by
		}
	}
	return ""
}

// leftOut lists what the run has gone on without, each path once, inside of calls, too.
func (r *Run) leftOut() (out []LeftOut) {
	note := func(path, outcome, reason string) {
		by := leftBy(outcome, reason)
		if by != "" && !slices.ContainsFunc(out, func(l LeftOut) bool { return l.Path == path }) {
			out = append(out, LeftOut{path, by})
		}
	}
	var inside func([]savedRecord)
	inside = func(trail []savedRecord) {
		for _, h := range trail {
			note(h.Path, h.Outcome, h.Reason)
			inside(h.Trail)
		}
	}
	for i, s := range r.plan.order {
		rec := &r.records[i]
		if !s.loops {
			note(s.Path, rec.outcome, rec.reason)
		}
		inside(rec.trail)
	}
	return out
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

// HasLeftOut tells whether a list that is kept has a path, or one below it.
func HasLeftOut(kept, path string) bool {
	return strings.Contains(kept, "\n"+path+" ") || strings.Contains(kept, "\n"+path+"/")
}

// WithoutLeftOut takes a path out of a list that is kept.
func WithoutLeftOut(kept, path string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(kept, "\n") {
		if line != "" && !strings.HasPrefix(line, path+" ") {
			b.WriteString("\n" + line)
		}
	}
	return b.String()
}

// A MakeUp lets a run that has succeeded do one handler that it had left out.
type MakeUp struct {
	Run        string
	Path       string
	Version    int64  // of the run, which the checkpoint builds on
	Checkpoint []byte // from which it goes on
	Priority   int    // of its event
}

// ErrNoMakeUp says that a run cannot make a handler up.
var ErrNoMakeUp = errors.New("cannot be made up")

// makeUp changes the checkpoint of a run that has succeeded so that it goes on with one handler
// alone. All other outcomes stay, and so does the key of the call.
func (p *Plan) makeUp(r RunRecord, path string) (m MakeUp, err error) {
	s := p.steps[path]
	switch {
	case s == nil:
		return m, fmt.Errorf("%s is inside of a call, or of a stage that is repeated: %w", path, ErrNoMakeUp)
	case s.callee != nil, s.Handler.ForEach != nil, s.Handler.Await != nil, s.Type.computes():
		return m, fmt.Errorf("%s does not make a single call: %w", path, ErrNoMakeUp)
	}
	c, err := readCheckpoint(r.Checkpoint)
	if err != nil {
		return m, err
	}
	at := slices.IndexFunc(c.Handlers, func(h savedRecord) bool { return h.Path == path })
	if at < 0 || leftBy(c.Handlers[at].Outcome, c.Handlers[at].Reason) == "" {
		return m, fmt.Errorf("%s was not left out: %w", path, ErrConflict)
	}
	c.Handlers = slices.Delete(c.Handlers, at, at+1)
	c.Ended, c.Stage, c.MakesUp, c.Generation = "", s.Stage, path, r.Generation+1
	return MakeUp{Run: r.ID, Path: path, Version: r.Version, Checkpoint: c.encode(), Priority: r.Event.Priority}, nil
}
