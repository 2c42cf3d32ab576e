package flowtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/engine/planner"
	"procaas/engine/store"
)

// entity checks the final state of an entity.
func (j *judge) entity(path string, at diag.Span, flow, key string, want *ExpectedEntity, own bool) {
	have, err := j.v.Engine().Entity(context.Background(), flow, key)
	if errors.Is(err, store.ErrNotFound) {
		j.add(at, path, "the entity "+key+" of "+flow, "none")
		return
	}
	if err != nil {
		j.add(at, path, "the entity "+key, err.Error())
		return
	}
	if want.State != "" && want.State != have.State {
		j.add(want.PlaceOf("state", head(at)), path+".state", want.State, orNothing(have.State))
	}
	if moved := j.transitions(flow, key); want.Transitions != nil && !slices.Equal(want.Transitions, moved) {
		j.add(want.PlaceOf("transitions", head(at)), path+".transitions", strings.Join(want.Transitions, ", "), strings.Join(moved, ", "))
	}
	if want.Blocked != nil && *want.Blocked != have.Blocked {
		j.add(want.PlaceOf("blocked", head(at)), path+".blocked", fmt.Sprint(*want.Blocked), fmt.Sprint(have.Blocked))
	}
	items := want.SharedState.Items()
	for i, k := range want.SharedState.Keys() {
		if j.relaxed.names[k.Name] && !own {
			continue
		}
		j.found = append(j.found, match(join(path+".shared-state", k.Name), items[i], have.SharedState[k.Name])...)
	}
}

// transitions lists the states that an entity was in.
func (j *judge) transitions(flow, key string) []string {
	state := planner.StateOf(j.suite.flow(flow), "")
	for _, e := range j.test.Entities {
		if f := j.suite.flow(e.Flow); f.ID == flow && e.Key == key && e.State != "" {
			state = e.State
		}
	}
	out := []string{state}
	for _, m := range j.moves {
		if r := j.view(m.run); r != nil && r.Flow == flow && r.Key == key && m.state != out[len(out)-1] {
			out = append(out, m.state)
		}
	}
	return out
}

// callsOf checks the calls of a run, or of all runs if it is empty.
func (j *judge) callsOf(path string, e, own *Expect, run string) {
	for i, want := range e.Calls {
		at := fmt.Sprintf("%s.calls[%d]", path, i)
		j.call(at, want, own.Calls != nil, run)
	}
	if len(e.Order) > 0 {
		j.order(path+".order", e, run)
	}
}

// call looks for calls that match an expected one.
func (j *judge) call(path string, want *ExpectedCall, own bool, run string) {
	var same []*Call
	var nearest []Difference
	like := 0
	for _, c := range j.calls {
		if run != "" && c.Run != run || c.Path != want.Handler && !strings.HasSuffix(c.Path, "/"+want.Handler) || c.Verify {
			continue
		}
		if j.relaxed.handlers[c.Path] && !own {
			return
		}
		same = append(same, c)
		differ := j.compareCall(path, want, c)
		if len(differ) == 0 {
			like++
		} else if nearest == nil || len(differ) < len(nearest) {
			nearest = differ
		}
	}
	if len(same) == 0 && !own && j.skips(want.Handler) {
		return
	}
	switch times := want.Times; {
	case times == nil && like > 0, times != nil && like == *times, times != nil && j.crashes() && like > *times && *times > 0:
	case times == nil && len(same) == 0:
		j.add(want.Span, path, "a call of "+want.Handler, "none")
	case times == nil && len(same) == 1, times != nil && len(same) == 1 && like == 0 && *times == 1:
		j.found = append(j.found, nearest...)
	case times == nil:
		j.add(want.Span, path, "a call of "+want.Handler+" like this", count(len(same), "call")+", none of them like this; the nearest differs:")
		j.found = append(j.found, nearest...)
	default:
		have := count(like, "call") + " like this"
		if like != len(same) {
			have += " among " + count(len(same), "call")
		}
		j.add(want.PlaceOf("times", head(want.Span)), path+".times", count(*times, "call")+" of "+want.Handler, have)
	}
}

// skips reports whether a handler may be skipped because it depends on the left out one.
func (j *judge) skips(name string) bool {
	for path := range j.relaxed.handlers {
		if path == name || strings.HasSuffix(path, "/"+name) {
			return true
		}
	}
	return false
}

func (j *judge) compareCall(path string, want *ExpectedCall, have *Call) []Difference {
	var out []Difference
	text := func(field, wanted, had string, ok bool) {
		if !ok {
			at := want.PlaceOf(field, head(want.Span))
			out = append(out, Difference{Path: path + "." + field, Span: at, Want: wanted, Have: orNothing(had)})
		}
	}
	text("method", want.Method, have.Method, want.Method == "" || strings.EqualFold(want.Method, have.Method))
	text("url", want.URL, have.URL, strings.Contains(have.URL, want.URL))
	if want.At != nil && !j.crashes() && j.variant.Off == "" {
		text("at", want.At.String(), have.At.String(), *want.At == have.At)
	}
	out = append(out, match(path+".query", want.Query, have.Request["query"])...)
	out = append(out, match(path+".body", want.Body, have.Request["body"])...)
	if want.Fields != nil {
		out = append(out, match(path+".fields", want.Fields, have.Fields)...)
	}
	headers, _ := have.Request["headers"].(map[string]any)
	for i, k := range want.Headers.Keys() {
		value, ok := headers[strings.ToLower(k.Name)]
		if !ok {
			value = any(absent{})
		}
		out = append(out, match(join(path+".headers", k.Name), want.Headers.Items()[i], value)...)
	}
	return out
}

// order checks the order of calls: each handler is called after the one before it has ended.
func (j *judge) order(path string, e *Expect, run string) {
	type stretch struct {
		name        string
		first       int // of the calls
		began, over time.Duration
	}
	var have []stretch
	for i, name := range e.Order {
		s := stretch{name: name, first: -1}
		for at, c := range j.calls {
			if run != "" && c.Run != run || c.Path != name && !strings.HasSuffix(c.Path, "/"+name) {
				continue
			}
			if s.first < 0 {
				s.first, s.began = at, c.At
			}
			s.over = c.At + c.Took
		}
		switch {
		case j.skips(name):
		case s.first < 0:
			j.add(e.PlaceOf(fmt.Sprintf("order[%d]", i), e.Span), path, "a call of "+name, "none")
		default:
			have = append(have, s)
		}
	}
	wrong := false
	for i := range have[:max(0, len(have)-1)] {
		wrong = wrong || have[i].first > have[i+1].first || have[i].over > have[i+1].began
	}
	if !wrong {
		return
	}
	slices.SortFunc(have, func(a, b stretch) int { return cmp.Compare(a.first, b.first) })
	var texts []string
	for _, s := range have {
		texts = append(texts, fmt.Sprintf("%s (%s to %s)", s.name, s.began, s.over))
	}
	j.add(e.at("order"), path, strings.Join(e.Order, ", "), strings.Join(texts, ", "))
}

// emitsOf checks the events emitted by a run, or by all runs if it is empty.
func (j *judge) emitsOf(path string, e, own *Expect, run string) {
	for i, want := range e.Emits {
		at := fmt.Sprintf("%s.emits[%d]", path, i)
		if j.relaxed.events[want.Type] && own.Emits == nil {
			continue
		}
		like := 0
		var same []Emit
		var nearest []Difference
		for _, have := range j.emits {
			if have.Type != want.Type || run != "" && have.Run != run {
				continue
			}
			same = append(same, have)
			differ := want.compare(at, have)
			if len(differ) == 0 {
				like++
			} else if nearest == nil || len(differ) < len(nearest) {
				nearest = differ
			}
		}
		switch {
		case want.Times == nil && like > 0, want.Times != nil && like == *want.Times:
		case want.Times == nil && len(same) > 0:
			nearest[len(nearest)-1].note(shown(same))
			j.found = append(j.found, nearest...)
		case want.Times == nil:
			j.add(want.Span, at, "an event "+want.Type, j.emitted(run))
		default:
			have := fmt.Sprint(like)
			if like != len(same) {
				have += " among " + count(len(same), "event")
			}
			j.found = append(j.found, Difference{
				Path: at + ".times", Span: want.PlaceOf("times", head(want.Span)), Have: have, Note: shown(same),
				Want: count(*want.Times, "event") + " " + want.Type + " like this",
			})
		}
	}
}

func (want *ExpectedEmit) compare(path string, have Emit) []Difference {
	var out []Difference
	if want.Key != "" && want.Key != have.Key {
		out = append(out, Difference{Path: path + ".key", Span: want.PlaceOf("key", head(want.Span)), Want: want.Key, Have: orNothing(have.Key)})
	}
	if delay := have.delay(); want.Delay != nil && *want.Delay != delay {
		out = append(out, Difference{
			Path: path + ".delay", Span: want.PlaceOf("delay", head(want.Span)), Want: want.Delay.String(),
			Have: delay.String(),
		})
	}
	return append(out, match(path+".payload", want.Payload, have.Payload)...)
}

// mostEmits is how many emitted events a finding shows.
const mostEmits = 5

// shown formats emitted events, one per line.
func shown(events []Emit) string {
	var lines []string
	for _, e := range events[:min(len(events), mostEmits)] {
		line := "emitted: key " + e.Key
		if e.Key == "" {
			line = "emitted: no key"
		}
		if delay := e.delay(); delay != 0 {
			line += ", delay " + delay.String()
		}
		lines = append(lines, line+", payload "+expr.ShowValue(e.Payload))
	}
	if more := len(events) - mostEmits; more > 0 {
		lines = append(lines, "and "+count(more, "more event"))
	}
	return strings.Join(lines, "\n")
}

// delay returns how long after its emission the event was due.
func (e *Emit) delay() time.Duration {
	if e.Event.At.IsZero() {
		return 0
	}
	return e.Event.At.Sub(e.Time)
}

// emitted lists the types of emitted events.
func (j *judge) emitted(run string) string {
	var types []string
	for _, e := range j.emits {
		if run == "" || e.Run == run {
			types = append(types, e.Type)
		}
	}
	return orNothing(strings.Join(types, ", "))
}

// sorted lists the keys of a map of structs in the order of the file.
func sorted[T any](m map[string]T) []string {
	return slices.SortedFunc(maps.Keys(m), cmp.Compare[string])
}
