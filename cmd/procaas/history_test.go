package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A history is what a torture test saw, in times of one clock. Its checks need
// nothing else, so that they are tested themselves.
type history struct {
	sent   []sentEvent
	calls  []heardCall
	lapses []lapse
	runs   []endedRun // all that the API lists
}

// A sentEvent is an event that was accepted.
type sentEvent struct {
	run, key, kind string
	n              int  // its place among the accepted events of the key, from 1
	late           bool // sent when the automaton allowed nothing any more
}

// A heardCall is a call that a service heard.
type heardCall struct {
	node             int // the process that made it
	run, path, token string
	key              string
	n, count         int
	start, applied   time.Time // applied is zero when the call had no effect
	answered         bool      // with success, as far as the service knows
}

// A lapse is a moment at which a process lost the runs that it worked on: it was
// killed, or found out that its lease had been taken.
type lapse struct {
	node int
	at   time.Time
}

// An endedRun is a run as the API shows it in the end.
type endedRun struct{ id, key, pipeline, status string }

// The calls that the run of each kind of event makes.
var wantPaths = map[string][]string{
	"open":  {"open/stage-1/call"},
	"work":  {"work/stage-1/left", "work/stage-1/right", "work/stage-2/left", "work/stage-3/sum"},
	"rest":  {"rest/stage-2/call"},
	"close": {"close/stage-1/call"},
	"note":  {"note/stage-1/call"},
}

// pipeline and stage are the parts of the path of a call.
func (c heardCall) pipeline() string { p, _, _ := strings.Cut(c.path, "/"); return p }
func (c heardCall) stage() string    { return strings.Split(c.path, "/")[1] }

// flow tells whose order the call is in.
func (c heardCall) flow() string {
	if c.pipeline() == "note" {
		return "note"
	}
	return "trip"
}

// A handlerRun is one handler of one run, with all calls of it.
type handlerRun struct{ run, path string }

// violations lists all that must not be.
func (h *history) violations() []string {
	slices.SortFunc(h.calls, func(a, b heardCall) int { return a.start.Compare(b.start) })
	return slices.Concat(h.wrongRuns(), h.wrongTokens(), h.wrongCalls(), h.wrongSums(), h.wrongOrder(), h.wrongRepeats())
}

// wrongRuns compares the runs that exist with the events that were accepted.
func (h *history) wrongRuns() (wrong []string) {
	want := map[string]string{} // run → status
	works := map[string]int{}   // key → notes
	for _, s := range h.sent {
		if want[s.run] != "" {
			wrong = append(wrong, fmt.Sprintf("run %s was given to two events", s.run))
		}
		want[s.run] = "succeeded"
		if s.late {
			want[s.run] = "ignored"
		}
		if s.kind == "work" && !s.late {
			works[s.key]++
		}
	}
	for _, r := range h.runs {
		status, known := want[r.id]
		switch {
		case r.pipeline == "note":
			status = "succeeded"
			works[r.key]--
		case !known:
			wrong = append(wrong, fmt.Sprintf("run %s of %s: nobody was told that its event was accepted", r.id, r.key))
			continue
		}
		delete(want, r.id)
		if r.status != status {
			wrong = append(wrong, fmt.Sprintf("run %s of %s is %s, want %s", r.id, r.key, r.status, status))
		}
	}
	for run := range want {
		wrong = append(wrong, fmt.Sprintf("run %s is lost", run))
	}
	for key, n := range works {
		if n != 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %d notes are missing", key, n))
		}
	}
	return wrong
}

// wrongTokens looks for handlers that called with several idempotency keys, or
// with another's.
func (h *history) wrongTokens() (wrong []string) {
	of := map[handlerRun]string{}
	by := map[string]handlerRun{}
	for _, c := range h.calls {
		who := handlerRun{c.run, c.path}
		if first, ok := of[who]; ok && first != c.token {
			wrong = append(wrong, fmt.Sprintf("%v has called with the keys %s and %s", who, first, c.token))
		}
		if first, ok := by[c.token]; ok && first != who {
			wrong = append(wrong, fmt.Sprintf("%v and %v have called with the same key", first, who))
		}
		of[who], by[c.token] = c.token, who
	}
	return wrong
}

// wrongCalls compares the effects with those that the accepted events must have.
func (h *history) wrongCalls() (wrong []string) {
	applied := map[handlerRun]bool{}
	for _, c := range h.calls {
		applied[handlerRun{c.run, c.path}] = applied[handlerRun{c.run, c.path}] || !c.applied.IsZero()
	}
	expect := func(run, kind string) {
		for _, path := range wantPaths[kind] {
			if who := (handlerRun{run, path}); !applied[who] {
				wrong = append(wrong, fmt.Sprintf("%v has had no effect", who))
			}
			delete(applied, handlerRun{run, path})
		}
	}
	for _, s := range h.sent {
		if !s.late {
			expect(s.run, s.kind)
		}
	}
	for _, r := range h.runs {
		if r.pipeline == "note" {
			expect(r.id, "note")
		}
	}
	for who := range applied {
		wrong = append(wrong, fmt.Sprintf("%v was called for no event", who))
	}
	return wrong
}

// wrongSums compares the state that the runs of a key count up with their number.
func (h *history) wrongSums() (wrong []string) {
	counts := map[string]int{} // key and n → how many have counted until then
	for _, s := range h.sent {
		for _, other := range h.sent {
			if other.key == s.key && other.n <= s.n && (other.kind == "work" || other.kind == "rest") {
				counts[fmt.Sprint(s.key, " ", s.n)]++
			}
		}
	}
	for _, c := range h.calls {
		if want := counts[fmt.Sprint(c.key, " ", c.n)]; c.count != 0 && c.count != want {
			wrong = append(wrong, fmt.Sprintf("event %d of %s counts %d, want %d", c.n, c.key, c.count, want))
		}
	}
	return wrong
}

// A step is a stage of an event in the order of its key.
type keyStep struct {
	flow, key string
	n         int
	stage     string
}

// wrongOrder looks for first calls that began before all effects of the stages and
// events before them: those of one key must come one after the other.
func (h *history) wrongOrder() (wrong []string) {
	type span struct{ first, last time.Time } // first call begins, last effect
	spans := map[keyStep]*span{}
	// A repeated call has no effect where another one has had it. That may be the repeated one: the service still works on the call of a
	// node that was killed, while the next node has its answer.
	effects := map[handlerRun]time.Time{}
	for _, c := range h.calls {
		who := handlerRun{c.run, c.path}
		if first, known := effects[who]; !c.applied.IsZero() && (!known || c.applied.Before(first)) {
			effects[who] = c.applied
		}
	}
	for _, c := range h.calls {
		at := keyStep{c.flow(), c.key, c.n, c.stage()}
		s := spans[at]
		if s == nil {
			s = &span{first: c.start}
			spans[at] = s
		}
		if effect := effects[handlerRun{c.run, c.path}]; effect.After(s.last) {
			s.last = effect
		}
	}
	var steps []keyStep
	for at := range spans {
		steps = append(steps, at)
	}
	slices.SortFunc(steps, func(a, b keyStep) int {
		return cmp.Or(cmp.Compare(a.flow, b.flow), cmp.Compare(a.key, b.key), cmp.Compare(a.n, b.n), cmp.Compare(a.stage, b.stage))
	})
	for i := 1; i < len(steps); i++ {
		a, b := steps[i-1], steps[i]
		if a.flow == b.flow && a.key == b.key && spans[b].first.Before(spans[a].last) {
			wrong = append(wrong, fmt.Sprintf("%v began %s before the end of %v", b, spans[a].last.Sub(spans[b].first), a))
		}
	}
	return wrong
}

// settling is how long after a call was made again the process that had its answer may find out
// that it has lost the run: it stood still, or the store was not there. It had lost it
// before, however long it could not save the answer. Lagging is how long after the end of
// its process a call may be heard.
const (
	settling = 20 * time.Second
	lagging  = time.Second
)

// wrongRepeats looks for calls that were made again although the one before was
// answered, and its process lost nothing.
func (h *history) wrongRepeats() (wrong []string) {
	last := map[handlerRun]heardCall{}
	for _, c := range h.calls {
		who := handlerRun{c.run, c.path}
		before, again := last[who]
		if again && before.answered && !h.lapsed(before, c.start) {
			wrong = append(wrong, fmt.Sprintf("%v was called again by node %d after %s, though node %d had had its answer",
				who, c.node, c.start.Sub(before.start), before.node))
		}
		last[who] = c
	}
	return wrong
}

// lapsed reports whether the process of a call may have lost its outcome before it was made again.
func (h *history) lapsed(c heardCall, again time.Time) bool {
	return slices.ContainsFunc(h.lapses, func(l lapse) bool {
		return l.node == c.node && l.at.Add(lagging).After(c.start) && l.at.Before(again.Add(settling))
	})
}
