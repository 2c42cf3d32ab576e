package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/dsl/expr"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/records"
)

// This file compares two courses of a run.

// These are the kinds of differences.
const (
	KindRoute   = "route"   // another pipeline serves the event, or none does
	KindNoReply = "unknown" // a call without a recorded answer, on which the rest depends
	KindAdded   = "call added"
	KindRemoved = "call removed"
	KindService = "service"  // a call goes elsewhere
	KindRequest = "request"  // a call sends something else
	KindTries   = "attempts" // a call is made more or less often
	KindOutcome = "outcome"  // of a handler
	KindEvent   = "event"    // an emitted event
	KindStatus  = "status"   // of the run
	KindResult  = "result"   // of the run: shared state, outputs, state of its key
	KindSlower  = "slower"   // the run takes longer
)

// A Difference is one difference between two courses of a run.
type Difference struct {
	Kind string
	Path string // of the handler; of the pipeline if it is about the run
	At   string // the part, such as body.items[*].id; empty for the whole
	Was  string
	Now  string

	when time.Duration
}

// id is the same for equal differences of several runs.
func (d Difference) id() string { return d.Kind + "\x00" + d.Path + "\x00" + d.At }

// A comparison collects the differences of one run.
type comparison struct {
	was, now *Played
	slower   float64
	found    []Difference
}

// maxDifferences bounds the differences of one call or one result.
const maxDifferences = 20

// Slack is a difference of durations that never matters.
const Slack = 10 * time.Millisecond

// Compare returns the differences between two courses of a run, in the order of time. slower is the
// share by which a run may take longer.
func Compare(was, now *Played, slower float64) []Difference {
	c := &comparison{was: was, now: now, slower: slower}
	if was.Refused != now.Refused || was.Run.Pipeline != now.Run.Pipeline && now.Stop == nil {
		c.add(0, KindRoute, cmp.Or(was.Run.Pipeline, now.Run.Pipeline), "", was.way(), now.way())
		return c.found
	}
	c.calls()
	c.emits()
	if stop := now.Stop; stop != nil {
		c.add(stop.At, KindNoReply, stop.Path, "", "not called", "calls "+stop.to()+"; the recording has no answer")
	} else {
		c.end()
	}
	slices.SortStableFunc(c.found, func(a, b Difference) int { return cmp.Compare(a.when, b.when) })
	return c.found
}

// way returns which pipeline serves the event.
func (p *Played) way() string { return cmp.Or(p.Refused, "pipeline "+p.Run.Pipeline) }

func (c *comparison) add(when time.Duration, kind, path, at, was, now string) {
	c.found = append(c.found, Difference{kind, path, at, was, now, when})
}

// to returns where a call goes.
func (c *Call) to() string {
	if c.Method == "" {
		return c.Path
	}
	return c.Method + " " + c.URL
}

// shown returns what a call sends, for people.
func (c *Call) shown() string {
	if body := c.Sent["body"]; body != nil {
		return c.to() + " " + expr.ShowValue(body)
	}
	if query, _ := c.Sent["query"].(map[string]any); len(query) > 0 {
		return c.to() + " " + expr.ShowValue(query)
	}
	return c.to()
}

func (c *Call) key() key { return key{c.Ref, c.Attempt, c.Verify} }

// calls compares the calls.
func (c *comparison) calls() {
	before, after := map[key]*Call{}, map[key]*Call{}
	tries := map[string][2]int{} // by ref
	for side, calls := range [2][]*Call{c.was.Calls, c.now.Calls} {
		for _, call := range calls {
			[2]map[key]*Call{before, after}[side][call.key()] = call
			if !call.Verify {
				n := tries[call.Ref]
				n[side]++
				tries[call.Ref] = n
			}
		}
	}
	told := map[string]bool{} // refs whose numbers of attempts were reported
	for _, call := range c.now.Calls {
		old, both := before[call.key()]
		n := tries[call.Ref]
		switch {
		case both:
			c.call(old, call)
		case call == c.now.Stop:
		case n[0] > 0:
			c.attempts(call, n, told)
		default:
			c.add(call.At, KindAdded, call.Path, "", "not called", call.shown())
		}
	}
	for _, call := range c.was.Calls {
		n := tries[call.Ref]
		switch {
		case after[call.key()] != nil, c.now.Stop != nil && call.At >= c.now.Stop.At:
		case n[1] > 0:
			c.attempts(call, n, told)
		default:
			c.add(call.At, KindRemoved, call.Path, "", call.shown(), c.now.why(call.Ref))
		}
	}
}

// why returns why a handler makes no call.
func (p *Played) why(ref string) string {
	for _, h := range p.Run.Handlers {
		if h.Ref() == ref || strings.HasPrefix(ref, h.Ref()+"[") {
			return "not called: " + strings.TrimSpace(h.Outcome+" "+cmp.Or(h.Reason, h.Error))
		}
	}
	return "not called"
}

// attempts reports, once per handler, that a call is made more or less often.
func (c *comparison) attempts(call *Call, n [2]int, told map[string]bool) {
	if !told[call.Ref] {
		told[call.Ref] = true
		c.add(call.At, KindTries, call.Path, "", strconv.Itoa(n[0]), strconv.Itoa(n[1]))
	}
}

// call compares two calls of a handler.
func (c *comparison) call(was, now *Call) {
	if was.to() != now.to() {
		c.add(now.At, KindService, now.Path, "", was.to(), now.to())
	}
	c.data(now.At, KindRequest, now.Path, "", was.Sent, now.Sent)
}

// data compares data, and bounds the reported differences.
func (c *comparison) data(when time.Duration, kind, path, at string, was, now any) {
	room := maxDifferences
	walk(at, was, now, func(at string, was, now any) {
		room--
		if room >= 0 {
			c.add(when, kind, path, at, show(was), show(now))
		}
	})
}

// names lists the keys of two mappings.
func names[T any](a, b map[string]T) []string {
	all := maps.Clone(a)
	if all == nil {
		return slices.Sorted(maps.Keys(b))
	}
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// absent is the missing value.
type absent struct{}

func show(v any) string {
	if _, ok := v.(absent); ok {
		return "nothing"
	}
	return expr.ShowValue(v)
}

// walk finds differing places in data. Lists of different lengths differ as a whole.
func walk(at string, a, b any, tell func(at string, a, b any)) {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			break
		}
		for _, name := range names(x, y) {
			inner := strings.TrimPrefix(at+"."+name, ".")
			walk(inner, member(x, name), member(y, name), tell)
		}
		return
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		for i := range x {
			walk(at+"[*]", x[i], y[i], tell)
		}
		return
	}
	if !same(a, b) {
		tell(at, a, b)
	}
}

func member(m map[string]any, name string) any {
	if v, ok := m[name]; ok {
		return v
	}
	return absent{}
}

// same compares two values that are not both mappings, or both lists of the same length.
func same(a, b any) bool {
	x, isNumber := number(a)
	y, both := number(b)
	if isNumber && both {
		return x == y
	}
	switch a.(type) {
	case []any, map[string]any:
		return false
	}
	switch b.(type) {
	case []any, map[string]any:
		return false
	}
	return a == b
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// emits compares emitted events, those of a type by their order.
func (c *comparison) emits() {
	byType := func(emits []Emit) map[string][]Emit {
		out := map[string][]Emit{}
		for _, e := range emits {
			out[e.Event.Type] = append(out[e.Event.Type], e)
		}
		return out
	}
	before, after := byType(c.was.Emits), byType(c.now.Emits)
	for _, t := range names(before, after) {
		a, b := before[t], after[t]
		for i := range max(len(a), len(b)) {
			switch {
			case i >= len(a):
				c.add(b[i].At, KindEvent, c.pipeline(), t, "not emitted", expr.ShowValue(b[i].Event.Payload))
			case i >= len(b):
				if c.now.Stop == nil || a[i].At < c.now.Stop.At {
					c.add(a[i].At, KindEvent, c.pipeline(), t, expr.ShowValue(a[i].Event.Payload), "not emitted")
				}
			default:
				c.data(b[i].At, KindEvent, c.pipeline(), t+".payload", a[i].Event.Payload, b[i].Event.Payload)
				c.data(b[i].At, KindEvent, c.pipeline(), t+".key", a[i].Event.Key, b[i].Event.Key)
				c.data(b[i].At, KindEvent, c.pipeline(), t+".delay", delay(a[i]), delay(b[i]))
			}
		}
	}
}

// delay is how long after its emission an event is due.
func delay(e Emit) string {
	if e.Event.At.IsZero() {
		return "0s"
	}
	return max(0, e.Event.At.Sub(e.Event.Time)).String()
}

func (c *comparison) pipeline() string { return c.was.Run.Pipeline }

// end compares how the run ended, and its result.
func (c *comparison) end() {
	outcomes(&c.was.Run, &c.now.Run, func(was, now *checkpoint.HandlerView) {
		if !c.isTold(now.Path) {
			at := c.now.Took
			if now.Finished != nil && c.now.Run.Started != nil {
				at = now.Finished.Sub(*c.now.Run.Started)
			}
			c.add(at, KindOutcome, now.Path, "", came(was), came(now))
		}
	})
	last := max(c.was.Took, c.now.Took) + 1
	a, b := &c.was.Run, &c.now.Run
	if a.Status != b.Status || a.FailedPath != b.FailedPath {
		c.add(last, KindStatus, c.pipeline(), "", ends(a), ends(b))
	}
	c.data(last, KindResult, c.pipeline(), "outputs", a.Outputs, b.Outputs)
	for _, name := range names(a.SharedState, b.SharedState) {
		when, path := last, c.pipeline()
		if w, ok := c.now.Writers[name]; ok {
			when, path = w.At-1, w.Path // before what starts at the same time, and after its own calls
			for _, call := range c.now.Calls {
				if call.Path == path {
					when = max(when, call.At)
				}
			}
		}
		c.data(when, KindResult, path, "shared-state."+name, member(a.SharedState, name), member(b.SharedState, name))
	}
	c.data(last, KindResult, c.pipeline(), "state", c.was.State, c.now.State)
	if more := c.now.Took - c.was.Took; more >= Slack && float64(more) > c.slower*float64(c.was.Took) {
		c.add(last, KindSlower, c.pipeline(), "", rounded(c.was.Took), rounded(c.now.Took))
	}
}

// isTold reports whether the calls of a handler differ, which explains its outcome.
func (c *comparison) isTold(path string) bool {
	return slices.ContainsFunc(c.found, func(d Difference) bool {
		return d.Path == path && (d.Kind == KindAdded || d.Kind == KindRemoved)
	})
}

// outcomes reports handlers that both runs have reached with different outcomes.
func outcomes(was, now *checkpoint.RunView, tell func(was, now *checkpoint.HandlerView)) {
	before := map[string]*checkpoint.HandlerView{}
	for i := range was.Handlers {
		before[was.Handlers[i].Ref()] = &was.Handlers[i]
	}
	for i := range now.Handlers {
		h := &now.Handlers[i]
		if old := before[h.Ref()]; old != nil && old.Outcome != h.Outcome {
			tell(old, h)
		}
	}
}

func came(h *checkpoint.HandlerView) string {
	return strings.TrimSuffix(h.Outcome+": "+cmp.Or(h.Error, h.Reason), ": ")
}

func ends(v *checkpoint.RunView) string {
	if v.Status == model.Failed {
		return "failed in " + cmp.Or(v.Error, v.FailedPath)
	}
	return string(v.Status)
}

func rounded(d time.Duration) string { return d.Round(time.Millisecond).String() }

// Strays returns why a replay with the run's own definition does not give the recorded course, or
// empty. If it does not, no other definition can be compared.
func Strays(of *records.Recorded, p *Played) string {
	if p.Refused != "" {
		if of.Status == model.Ignored {
			return ""
		}
		return "in its own version, " + p.Refused
	}
	if p.Stop != nil {
		return fmt.Sprintf("the recording has no answer for attempt %d of %s: its node died, or it was cancelled", p.Stop.Attempt, p.Stop.Path)
	}
	if of.Status != p.Run.Status {
		return fmt.Sprintf("it was %s, and is %s in the replay of its own version", of.Status, p.Run.Status)
	}
	why := ""
	outcomes(&of.RunView, &p.Run, func(was, now *checkpoint.HandlerView) {
		if why == "" {
			why = fmt.Sprintf("%s was %s, and is %s in the replay of its own version", was.Path, was.Outcome, now.Outcome)
		}
	})
	if why != "" {
		return why
	}
	state, err := exact(of.SharedState)
	if err != nil {
		return err.Error()
	}
	walk("shared-state", state, any(p.Run.SharedState), func(at string, _, _ any) {
		if why == "" {
			why = at + " is another one in the replay of its own version"
		}
	})
	return why
}
