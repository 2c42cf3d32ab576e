package wiring

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// Flows checks flows. The checks of their pipelines check the names.
func Flows(w *merge.Whole, r *diag.Reporter) {
	for _, f := range w.Bundle.Flows {
		checkFlow(w, f, r)
	}
}

// checkFlow checks one flow.
func checkFlow(w *merge.Whole, f *tree.Flow, r *diag.Reporter) {
	if f.Key != nil {
		var events []string
		for _, p := range pipelinesOf(w, f.ID) {
			events = append(events, p.On...)
		}
		spec.Compile(f.Key, &spec.Field{Kind: datum.StringKind}, &expr.Scope{
			Parsed: w.Parsed, Roots: []string{"event"},
			Payload: w.PayloadOf(events),
		}, r)
	}
	if f.States != nil {
		checkAutomaton(w, f, r)
	}
}

// pipelinesOf lists the pipelines of a flow.
func pipelinesOf(w *merge.Whole, flow string) []*tree.Pipeline {
	var out []*tree.Pipeline
	for _, p := range w.Bundle.Pipelines {
		if p.Flow == flow {
			out = append(out, p)
		}
	}
	return out
}

// maxMoves limits an automaton. from and on multiply, so a hundred of each in one line are ten thousand moves.
const maxMoves = 10_000

// A graph is the automaton of a flow: moves between states.
type graph struct {
	*tree.Automaton
	moves map[string][]move // by source state
	names []string          // states that can be entered: the initial one and all targets
}

// A move leaves a state on one event type.
type move struct {
	on, to string
	at     diag.Span // the event type in its transition
}

// checkAutomaton checks that the automaton of a flow is deterministic, that every state can be reached and
// left, and that the flow's pipelines serve its events.
func checkAutomaton(w *merge.Whole, f *tree.Flow, r *diag.Reporter) {
	g := newGraph(f.States, r)
	if g == nil {
		return
	}
	checkFinal(g, r)
	if checkReachable(g, r) {
		checkDeadEnds(g, r)
	}
	checkServed(w, f, g, r)
}

// newGraph builds the graph. It reports moves that are duplicates or lead to two states. It returns nil if
// there are too many.
func newGraph(a *tree.Automaton, r *diag.Reporter) *graph {
	g := &graph{Automaton: a, moves: make(map[string][]move)}
	if a.Initial != "" {
		g.names = append(g.names, a.Initial)
	}
	count := 0
	for _, t := range a.Transitions {
		if t.To == "" {
			continue // already reported
		}
		count += len(t.From) * len(t.On)
		if count > maxMoves {
			r.Errorf(t.Span, rules.TooMany, "split the flow", "the automaton has over %d moves", maxMoves)
			return nil
		}
		if !slices.Contains(g.names, t.To) {
			g.names = append(g.names, t.To)
		}
		for _, from := range t.From {
			for i, on := range t.On {
				g.add(from, move{on: on, to: t.To, at: t.PlaceOf(fmt.Sprintf("on[%d]", i), t.PlaceOf("on", t.Span))}, r)
			}
		}
	}
	return g
}

// add adds a move. Another target for the same event is an error, and the same move again is a warning.
func (g *graph) add(from string, m move, r *diag.Reporter) {
	i := slices.IndexFunc(g.moves[from], func(o move) bool { return o.on == m.on })
	g.moves[from] = append(g.moves[from], m)
	if i < 0 {
		return
	}
	first := g.moves[from][i]
	d := diag.Diagnostic{
		Span: m.at, Code: rules.TwoWays,
		Message: fmt.Sprintf("%q leads from state %q to %q and to %q", m.on, from, first.to, m.to),
		Hint:    "keep one: the state after an event must not depend on chance",
		Related: []diag.Related{{Span: first.at, Message: fmt.Sprintf("to %q here", first.to)}},
	}
	if first.to == m.to {
		d.Severity, d.Code, d.Hint = diag.Warning, rules.SaidTwice, "delete one of them"
		d.Message = fmt.Sprintf("the transition from %q on %q to %q appears twice", from, m.on, m.to)
	}
	r.Report(d)
}

// reach returns the states that can follow a state, including itself.
func (g *graph) reach(from string) map[string]bool {
	seen := map[string]bool{from: true}
	for todo := []string{from}; len(todo) > 0; {
		state := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, m := range g.moves[state] {
			if !seen[m.to] {
				seen[m.to] = true
				todo = append(todo, m.to)
			}
		}
	}
	return seen
}

// checkReachable reports states that no event leads to, once each, where they are named first. It returns
// whether all are reachable.
func checkReachable(g *graph, r *diag.Reporter) bool {
	if g.Initial == "" {
		return false
	}
	all := true
	reached := g.reach(g.Initial)
	report := func(state string, at diag.Span) {
		if reached[state] || state == "" {
			return
		}
		reached[state], all = true, false // reported once, although other lines name it too
		r.Errorf(at, rules.Unreachable, r.SuggestOr(state, without(g.names, state), "add a transition to it"), "no transition leads from the "+
			"initial state %q to state %q", g.Initial, state)
	}
	for _, t := range g.Transitions {
		for i, from := range t.From {
			report(from, t.PlaceOf(fmt.Sprintf("from[%d]", i), t.PlaceOf("from", t.Span)))
		}
	}
	for i, final := range g.Final {
		report(final, g.finalPlace(i))
	}
	return all
}

// finalPlace returns the position of final state i.
func (g *graph) finalPlace(i int) diag.Span {
	return g.PlaceOf(fmt.Sprintf("final[%d]", i), g.PlaceOf("final", g.Span))
}

// checkFinal reports moves that leave a final state.
func checkFinal(g *graph, r *diag.Reporter) {
	for i, final := range g.Final {
		if slices.Index(g.Final, final) < i {
			r.Warnf(g.finalPlace(i), rules.SaidTwice, "delete one of them", "final lists %q twice", final)
			continue
		}
		for _, m := range g.moves[final] {
			r.Report(diag.Diagnostic{
				Span: m.at, Code: rules.LeavesFinal,
				Message: fmt.Sprintf("%q leads out of the final state %q", m.on, final),
				Hint:    "delete the transition, or take the state off final",
				Related: []diag.Related{{Span: g.finalPlace(i), Message: "final here"}},
			})
		}
	}
}

// checkDeadEnds warns about states from which no final state is reachable. All states are reachable here: a
// wrong name is already reported.
func checkDeadEnds(g *graph, r *diag.Reporter) {
	if len(g.Final) == 0 {
		return
	}
	ends := g.endless()
	for _, state := range g.names {
		if at, stuck := ends[state]; stuck {
			r.Warnf(at, rules.DeadEnd, "add a transition, or name the state in final",
				"an entity in state %q never reaches a final state", state)
		}
	}
}

// endless returns the states from which no final state is reachable, with the positions where they are entered.
// It searches backwards from the final states, so its cost is linear in the moves.
func (g *graph) endless() map[string]diag.Span {
	before := make(map[string][]string)
	for from, moves := range g.moves {
		for _, m := range moves {
			before[m.to] = append(before[m.to], from)
		}
	}
	ends := make(map[string]bool)
	for todo := slices.Clone(g.Final); len(todo) > 0; {
		state := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !ends[state] {
			ends[state] = true
			todo = append(todo, before[state]...)
		}
	}
	out := make(map[string]diag.Span)
	if !ends[g.Initial] {
		out[g.Initial] = g.PlaceOf("initial", g.Span)
	}
	for _, t := range g.Transitions {
		if _, known := out[t.To]; !known && !ends[t.To] {
			out[t.To] = t.PlaceOf("to", t.Span)
		}
	}
	return out
}

// checkServed compares the event types of the automaton with those that the flow's pipelines serve.
func checkServed(w *merge.Whole, f *tree.Flow, g *graph, r *diag.Reporter) {
	served := make(map[string]diag.Span)
	for _, p := range pipelinesOf(w, f.ID) {
		for i, on := range p.On {
			if _, known := served[on]; !known {
				served[on] = p.OnPlace(i)
			}
		}
	}
	moving := make(map[string]bool)
	for _, t := range g.Transitions {
		for i, on := range t.On {
			if _, ok := served[on]; !ok && !moving[on] && !w.Partial {
				hint := r.DidYouMean(on, diag.NamesIn(served))
				if near := diag.Suggest(on, diag.SortedKeys(served)); slices.Contains(t.On, near) {
					hint = fmt.Sprintf("delete it: the transition has %q", near)
				}
				r.Warnf(t.PlaceOf(fmt.Sprintf("on[%d]", i), t.PlaceOf("on", t.Span)), rules.Unserved, hint,
					"no pipeline of flow %q serves event type %q", f.ID, on)
			}
			moving[on] = true
		}
	}
	for _, on := range diag.SortedKeys(served) {
		if !moving[on] {
			r.Report(diag.Diagnostic{
				Span: served[on], Severity: diag.Warning, Code: rules.NoTransition,
				Message: fmt.Sprintf("flow %q has no transition on %q: the event is %s in every state", f.ID, on, afterwards(g.Otherwise)),
				Hint:    r.SuggestOr(on, diag.NamesIn(moving), "add a transition, or take it off the pipeline"),
				Related: []diag.Related{{Span: f.PlaceOf("id", f.Span), Message: "the flow"}},
			})
		}
	}
}

// afterwards returns what happens to an event without a transition.
func afterwards(otherwise string) string {
	switch strings.ToLower(otherwise) {
	case "ignore":
		return "ignored"
	case "defer":
		return "deferred for ever"
	}
	return "rejected"
}

// without returns a list without one name.
func without(names []string, name string) func() []string {
	return func() []string {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
	}
}
