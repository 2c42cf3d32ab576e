package proof

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/steps"
	"procaas/dsl/tree"
)

// A proof shows that the critical handlers of a pipeline work without those that the engine may leave out. It
// assumes that every optional handler is off, and follows the nulls: names of the shared state that only such
// handlers set, and values computed from these. A critical handler that continues after an error may also leave
// a null.
type proof struct {
	*merge.Whole
	*diag.Reporter
	*steps.Pipeline

	found []diag.Diagnostic             // findings of earlier checks
	kept  map[string][]steps.Assignment // names of the flow, set by any of its pipelines
	known map[goal][]cause              // results so far; nil for a value that is not null
}

// A goal is the question whether a name is null at the start of a step.
type goal struct {
	name string
	step int
}

// A cause is one step from a handler that is off to a null value.
type cause struct {
	handler  *tree.Handler
	unchosen bool // the handler is on, but its branch is not taken
	diag.Related
}

// Degradation proves all pipelines. It runs last, because it needs what the other pipelines of a flow set.
func Degradation(w *merge.Whole, pipelines []*steps.Pipeline, r *diag.Reporter) {
	kept := make(map[string]map[string][]steps.Assignment) // by flow and name
	for _, p := range pipelines {
		if p.Flow == nil {
			continue
		}
		if kept[p.Flow.ID] == nil {
			kept[p.Flow.ID] = make(map[string][]steps.Assignment)
		}
		for name, sets := range p.Sets {
			kept[p.Flow.ID][name] = append(kept[p.Flow.ID][name], sets...)
		}
	}
	found := r.Found
	diag.InParallel(len(pipelines), r, func(i int, r *diag.Reporter) {
		if !pipelines[i].Sound {
			return // its reads are unknown
		}
		own := *pipelines[i] // a copy, since the outputs are added as a step
		p := &proof{Whole: w, Reporter: r, Pipeline: &own, found: found, known: make(map[goal][]cause)}
		if p.Flow != nil {
			p.kept = kept[p.Flow.ID]
		}
		for i := range p.Steps {
			p.check(i)
			p.checkEnabled(i)
			p.checkDetached(i)
		}
		p.checkOutputs()
	})
}

// check reports unset values that handler i may read. A condition that is computed before a read may test the value.
func (p *proof) check(i int) {
	h := p.Steps[i].Handler
	reported := make(map[[2]string]bool)
	p.checkConditions(i, reported)
	tested, enabled := p.Steps[i].EarlierConditions(), h.Enabled.Reads()
	for _, reads := range [][]datum.Read{enabled, h.ConditionReads()[len(enabled):]} {
		p.checkReads(h, reads, i, tested, reported)
		tested = append(tested, reads...)
	}
	for _, reads := range [][]datum.Read{h.ItemReads(), h.AwaitReads(), h.BodyReads(), h.Result.Reads(), h.VerifyReads(), h.ErrorReads(), h.UndoReads()} {
		p.checkReads(h, reads, i, tested, reported)
	}
}

// checkConditions reports unset values that the conditions of a stage may read. It reports each once, at the
// first critical handler, which would fail.
func (p *proof) checkConditions(i int, reported map[[2]string]bool) {
	stage, first := p.Steps[i].Stage, i
	for first > 0 && p.Steps[first-1].Stage == stage {
		first--
	}
	at := first
	for j := first; j < len(p.Steps) && p.Steps[j].Stage == stage; j++ {
		if p.Steps[j].IsCritical() {
			at = j
			break
		}
	}
	if at != i {
		return
	}
	tested := stage.Enabled.Reads()
	p.checkReads(p.Steps[i].Handler, tested, first, nil, reported)
	for _, b := range stage.Choose {
		when := b.When.Reads()
		p.checkReads(p.Steps[i].Handler, when, first, tested, reported)
		tested = append(tested, when...)
	}
}

// checkReads reports reads of values that are not set before a step, unless one of the conditions reads them.
func (p *proof) checkReads(h *tree.Handler, reads []datum.Read, i int, conditions []datum.Read, reported map[[2]string]bool) {
	for _, read := range reads {
		p.checkRead(h, read, i, conditions, reported)
	}
}

func (p *proof) checkRead(h *tree.Handler, read datum.Read, i int, conditions []datum.Read, reported map[[2]string]bool) {
	if read.Guarded || len(read.Path) < 2 || looksAt(conditions, read.Path) {
		return
	}
	what := [2]string(read.Path[:2])
	if reported[what] {
		return
	}
	if h.IsCritical() {
		if chain := p.whyNull(read.Path, i); chain != nil && !p.looksAtAll(conditions, chain) {
			reported[what] = true
			p.reportChain(h, read, chain)
			return
		}
	}
	if read.Path[0] == "shared-state" && p.neverSet(read.Path[1], i) {
		reported[what] = true
		p.reportNeverSet(h, read, i)
	}
}

// looksAt reports whether a handler's condition reads a path. Then its author has considered that it may be
// null.
func looksAt(conditions []datum.Read, path datum.Path) bool {
	return len(path) >= 2 && slices.ContainsFunc(conditions, func(c datum.Read) bool {
		return len(c.Path) >= 2 && c.Path[:2].Equal(path[:2])
	})
}

// looksAtAll reports whether the condition reads the outcome of each handler of a chain.
func (p *proof) looksAtAll(conditions []datum.Read, chain []cause) bool {
	for _, l := range chain {
		if !looksAt(conditions, datum.Path{"sources", l.handler.ID}) {
			return false
		}
	}
	return true
}

// whyNull returns the chain of handlers that leaves a path null for a step when all optional handlers are off.
// It returns nil if the path is not null.
func (p *proof) whyNull(path datum.Path, step int) []cause {
	if path[0] == "shared-state" {
		return p.whyUnset(path[1], step)
	}
	id := steps.SourceOf(path)
	if id == "" || len(path) < 3 || path[2] != "response" && path[2] != "status" {
		return nil
	}
	for i, s := range p.Steps[:step] {
		if step < len(p.Steps) && p.Steps[step].Hides(s) {
			continue
		}
		if s.ID == id && !s.IsCritical() {
			return []cause{newCause(s.Handler, s.PlaceOf("id", s.Span), fmt.Sprintf("%q is not critical, so it may be off", id))}
		}
		if s.ID == id && p.conditional(i, step) {
			return []cause{p.unchosen(i, s.PlaceOf("id", s.Span), fmt.Sprintf("%q is in a branch, which may not be taken", id))}
		}
		if rule := s.GoesOn(); s.ID == id && rule != nil && path[2] == "response" {
			return []cause{newCause(s.Handler, rule.PlaceOf("then", rule.Span), fmt.Sprintf("%q continues without a response after an error", id))}
		}
	}
	return nil
}

// whyUnset follows the assignments of a name backwards from a step to the last one that certainly happens.
func (p *proof) whyUnset(name string, step int) []cause {
	g := goal{name, step}
	if chain, ok := p.known[g]; ok {
		return chain
	}
	p.known[g] = nil // a name that depends on itself proves nothing
	chain := p.follow(name, step)
	p.known[g] = chain
	return chain
}

func (p *proof) follow(name string, step int) []cause {
	var chain []cause
	for _, a := range slices.Backward(p.Sets[name]) {
		if a.At >= step || p.apart(a.At, step) || p.LocalTo(name, a.At) != p.LocalTo(name, step) {
			continue
		}
		causes, sure := p.null(a)
		if p.conditional(a.At, step) {
			if p.inEveryBranch(name, p.Steps[a.At].Stage) {
				return nil
			}
			sure = false
			causes = append(causes, p.unchosen(a.At, a.Key.Span,
				fmt.Sprintf("%q sets shared-state.%s; it is in a branch, which may not be taken", p.Steps[a.At].ID, name)))
		}
		if sure && len(causes) == 0 {
			return nil
		}
		chain = append(chain, causes...)
		if sure {
			return chain
		}
	}
	if first, declared := p.FirstValue(name, step); !declared || first != nil {
		return nil
	}
	return p.followFlow(name, step, chain)
}

// followFlow continues with earlier events. A name of the flow is unset only if every handler that sets it
// anywhere may be off.
func (p *proof) followFlow(name string, step int, chain []cause) []cause {
	if p.Flow == nil {
		return chain
	}
	if p.Flow.SharedState.Get(name) == nil {
		return chain
	}
	for _, a := range p.kept[name] {
		if a.Of.Declared == p.Declared && a.At < step {
			continue // already visited
		}
		if a.Step().IsCritical() || a.StandIn != nil {
			return nil
		}
		chain = append(chain, off(a))
	}
	return chain
}

// null returns the effect of an assignment while its handler is off. If sure, it decides the value: null with
// causes, not null without. Otherwise it has no effect, and the former value counts.
func (p *proof) null(a steps.Assignment) (causes []cause, sure bool) {
	h := a.Step().Handler
	v := a.Value
	if !h.IsCritical() {
		if a.StandIn == nil {
			return []cause{off(a)}, false
		}
		v = a.StandIn
	}
	if v == nil {
		return nil, false // the fallback of a critical handler is already reported, or only a rule sets the name
	}
	if chain := p.afterError(a); chain != nil {
		return chain, false
	}
	if v.IsNull() && !h.IsCritical() {
		return []cause{newCause(h, v.Span, fmt.Sprintf("the fallback of %q sets shared-state.%s to null", h.ID, a.Key.Name))}, true
	}
	for _, read := range v.Reads() {
		// A critical handler that reads a null unguarded gets its own finding.
		passes := !read.Guarded && !h.IsCritical() || passesNull(v)
		if !passes || len(read.Path) < 2 {
			continue
		}
		if chain := p.whyNull(read.Path, a.At); chain != nil {
			l := newCause(h, a.Key.Span, fmt.Sprintf("%q sets shared-state.%s from it", h.ID, a.Key.Name))
			if !h.IsCritical() {
				l = newCause(h, v.Span, fmt.Sprintf("the fallback of %q sets shared-state.%s from it", h.ID, a.Key.Name))
			}
			return append([]cause{l}, chain...), true
		}
	}
	return nil, true
}

// afterError returns the causes of a null that a critical handler leaves when it continues after an error.
func (p *proof) afterError(a steps.Assignment) []cause {
	h := a.Step().Handler
	if !h.IsCritical() {
		return nil
	}
	for _, rule := range h.OnError {
		if !rule.GoesOn() {
			continue
		}
		if v := rule.Result.Get(a.Key.Name); v.IsNull() {
			at := rule.PlaceOf("then", rule.Span)
			if v != nil {
				at = v.Span
			}
			return []cause{newCause(h, at, fmt.Sprintf("%q continues after an error without setting shared-state.%s", h.ID, a.Key.Name))}
		}
	}
	return nil
}

// off returns the cause for a handler that sets a name, when the handler is off.
func off(a steps.Assignment) cause {
	h := a.Step().Handler
	return newCause(h, a.Key.Span, fmt.Sprintf("%q sets shared-state.%s; it is not critical, so it may be off", h.ID, a.Key.Name))
}

func newCause(h *tree.Handler, at diag.Span, message string) cause {
	return cause{handler: h, Related: diag.Related{Span: at, Message: message}}
}

// passesNull reports whether a value is only a chain of members with ?., which passes a null on.
func passesNull(v *expr.Value) bool {
	e := v.Expr()
	return e != nil && strings.Contains(e.Source, "?.") && !strings.Contains(e.Source, "??") &&
		!strings.ContainsAny(strings.TrimSpace(e.Source), " \t\n()")
}

// neverSet reports whether no handler sets a name before a step, although its initial value is null.
func (p *proof) neverSet(name string, step int) bool {
	first, declared := p.FirstValue(name, step)
	if !declared || first != nil {
		return false
	}
	if slices.ContainsFunc(p.Sets[name], func(a steps.Assignment) bool {
		return a.At < step && !p.apart(a.At, step) && p.LocalTo(name, a.At) == p.LocalTo(name, step)
	}) {
		return false
	}
	if p.Flow == nil {
		return true
	}
	return p.Flow.SharedState.Get(name) == nil || len(p.kept[name]) == 0
}

// checkOutputs reports outputs that may be unset, as if a last critical handler read them.
func (p *proof) checkOutputs() {
	if p.Declared.Outputs == nil {
		return
	}
	at := p.Declared.PlaceOf("outputs", p.Declared.Span)
	h := &tree.Handler{ID: "outputs", Span: at} // critical by default
	p.Steps = append(slices.Clip(p.Steps), steps.Step{Handler: h, Stage: &tree.Stage{ID: "outputs"}})
	reported := make(map[[2]string]bool)
	p.checkReads(h, p.Declared.Outputs.Reads(), len(p.Steps)-1, nil, reported)
}
