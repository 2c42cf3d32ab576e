package dsl

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/tree"
)

// A proof shows that the critical handlers of a pipeline do not need those that
// the engine may take out of the flow. It takes every handler that is not
// critical to be off, and follows what is then null: a name of the shared state
// that only such handlers set, and what others compute from it. A critical handler
// that goes on after an error may leave a null just so.
type proof struct {
	*pipelineCheck
	kept  map[string][]assignment // names of the flow, set by any of its pipelines
	known map[goal][]cause        // what was found out; nil for what is not null
}

// An assignment is one place that sets a name of the shared state.
type assignment struct {
	*pipelineCheck
	step    int
	key     expr.Key
	value   *expr.Value // what the handler sets when it succeeds; nil when only a rule of on-error sets it
	standIn *expr.Value // what its fallback sets while it is off; nil for nothing
}

// A goal is the question whether a name is null when a step begins.
type goal struct {
	name string
	step int
}

// A cause is one step from a handler that is off to a null value.
type cause struct {
	handler  *tree.Handler
	unchosen bool // the handler is fine, but its branch is not taken
	diag.Related
}

// proveDegradation checks all pipelines. It comes last: it needs to know what
// every other pipeline of a flow sets.
func (c *checker) proveDegradation(pipelines []*pipelineCheck) {
	kept := make(map[string]map[string][]assignment)
	for _, pc := range pipelines {
		pc.sets = make(map[string][]assignment)
		for i := range pc.steps {
			for _, a := range pc.assignments(i) {
				pc.sets[a.key.Name] = append(pc.sets[a.key.Name], a)
			}
		}
		if pc.flow == nil {
			continue
		}
		if kept[pc.flow.ID] == nil {
			kept[pc.flow.ID] = make(map[string][]assignment)
		}
		for name, sets := range pc.sets {
			kept[pc.flow.ID][name] = append(kept[pc.flow.ID][name], sets...)
		}
	}
	diag.InParallel(len(pipelines), c.Reporter, func(i int, r *diag.Reporter) {
		pc := *pipelines[i] // a copy: each proof reports by itself, in parallel
		if !pc.sound {
			return // what it reads is not known
		}
		pc.Reporter = r
		p := &proof{pipelineCheck: &pc, known: make(map[goal][]cause)}
		if pc.flow != nil {
			p.kept = kept[pc.flow.ID]
		}
		for i := range pc.steps {
			p.check(i)
			p.checkEnabled(i)
		}
		p.checkOutputs()
	})
}

// assignments lists what the i-th handler sets.
func (c *pipelineCheck) assignments(i int) []assignment {
	h := c.steps[i].Handler
	var out []assignment
	add := func(v *expr.Value) {
		for j, k := range v.Keys() {
			out = append(out, assignment{pipelineCheck: c, step: i, key: k, value: v.Elems[j]})
		}
	}
	if c.Types.SetsState(h) {
		add(h.Body)
	}
	add(h.Result)
	for _, rule := range h.OnError {
		for _, k := range rule.Result.Keys() {
			if !slices.ContainsFunc(out, func(a assignment) bool { return a.key.Name == k.Name }) {
				out = append(out, assignment{pipelineCheck: c, step: i, key: k})
			}
		}
	}
	if h.Fallback == nil {
		return out
	}
	for j, k := range h.Fallback.Result.Keys() {
		v := h.Fallback.Result.Elems[j]
		at := slices.IndexFunc(out, func(a assignment) bool { return a.key.Name == k.Name })
		if at < 0 {
			out = append(out, assignment{pipelineCheck: c, step: i, key: k, standIn: v})
			continue
		}
		out[at].standIn = v
	}
	return out
}

// check reports what the i-th handler may read although nobody has set it.
func (p *proof) check(i int) {
	h := p.steps[i].Handler
	conditions, own := p.steps[i].conditionReads(), h.ConditionReads()
	reported := make(map[string]bool)
	p.checkConditions(i, reported)
	for n, read := range slices.Concat(own, h.ItemReads(), h.AwaitReads(), h.BodyReads(), h.Result.Reads(), h.VerifyReads(), h.ErrorReads(),
		h.UndoReads()) {
		if n >= len(own) && looksAt(conditions, read.Path) {
			continue
		}
		p.checkRead(h, read, i, conditions, reported)
	}
}

// checkConditions reports what the conditions of a stage may read although nobody has
// set it, once: at the first critical handler, which the stage then fails with.
func (p *proof) checkConditions(i int, reported map[string]bool) {
	stage, first := p.steps[i].stage, i
	for first > 0 && p.steps[first-1].stage == stage {
		first--
	}
	at := first
	for j := first; j < len(p.steps) && p.steps[j].stage == stage; j++ {
		if p.steps[j].IsCritical() {
			at = j
			break
		}
	}
	if at != i {
		return
	}
	for _, read := range stage.ConditionReads() {
		p.checkRead(p.steps[i].Handler, read, first, nil, reported)
	}
}

// checkRead reports a read of what nobody has set before a step.
func (p *proof) checkRead(h *tree.Handler, read datum.Read, i int, conditions []datum.Read, reported map[string]bool) {
	if read.Guarded || len(read.Path) < 2 {
		return
	}
	what := read.Path[:2].String()
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

// looksAt tells whether the condition of a handler looks at what a path reads:
// its author has thought of the case that it is null.
func looksAt(conditions []datum.Read, path datum.Path) bool {
	return len(path) >= 2 && slices.ContainsFunc(conditions, func(c datum.Read) bool {
		return len(c.Path) >= 2 && c.Path[:2].Equal(path[:2])
	})
}

// looksAtAll tells whether the condition looks at the outcome of each handler of
// a chain.
func (p *proof) looksAtAll(conditions []datum.Read, chain []cause) bool {
	for _, l := range chain {
		if !looksAt(conditions, datum.Path{"sources", l.handler.ID}) {
			return false
		}
	}
	return true
}

// whyNull gives the chain of handlers that leaves a path null for a step when
// all that are not critical are off; nil when it is not null.
func (p *proof) whyNull(path datum.Path, step int) []cause {
	if path[0] == "shared-state" {
		return p.whyUnset(path[1], step)
	}
	id := sourceOf(path)
	if id == "" || len(path) < 3 || path[2] != "response" && path[2] != "status" {
		return nil
	}
	for i, s := range p.steps[:step] {
		if step < len(p.steps) && p.steps[step].hides(s) {
			continue
		}
		if s.ID == id && !s.IsCritical() {
			return []cause{newCause(s.Handler, s.PlaceOf("id", s.Span), fmt.Sprintf("%q is not critical, so it may be off", id))}
		}
		if s.ID == id && p.conditional(i, step) {
			return []cause{p.unchosen(i, s.PlaceOf("id", s.Span), fmt.Sprintf("%q is in a branch, which may not be taken", id))}
		}
		if rule := s.GoesOn(); s.ID == id && rule != nil && path[2] == "response" {
			return []cause{newCause(s.Handler, rule.PlaceOf("then", rule.Span), fmt.Sprintf("%q goes on without a response after an error", id))}
		}
	}
	return nil
}

// whyUnset follows the assignments of a name backwards from a step to the last
// one that is sure to happen.
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
	for _, a := range slices.Backward(p.sets[name]) {
		if a.step >= step || p.apart(a.step, step) || p.localTo(name, a.step) != p.localTo(name, step) {
			continue
		}
		causes, sure := p.null(a)
		if p.conditional(a.step, step) {
			if p.inEveryBranch(name, p.steps[a.step].stage) {
				return nil
			}
			sure = false
			causes = append(causes, p.unchosen(a.step, a.key.Span,
				fmt.Sprintf("%q sets shared-state.%s; it is in a branch, which may not be taken", p.steps[a.step].ID, name)))
		}
		if sure && len(causes) == 0 {
			return nil
		}
		chain = append(chain, causes...)
		if sure {
			return chain
		}
	}
	if first, declared := p.firstValue(name, step); !declared || first != nil {
		return nil
	}
	return p.followFlow(name, step, chain)
}

// followFlow goes on with what an earlier event may have left: a name that the
// flow keeps is unset only if all that set it anywhere may be off.
func (p *proof) followFlow(name string, step int, chain []cause) []cause {
	if p.flow == nil {
		return chain
	}
	if p.flow.SharedState.Get(name) == nil {
		return chain
	}
	for _, a := range p.kept[name] {
		if a.pipeline == p.pipeline && a.step < step {
			continue // seen
		}
		if a.steps[a.step].IsCritical() || a.standIn != nil {
			return nil
		}
		chain = append(chain, a.off())
	}
	return chain
}

// null tells what an assignment leaves while its handler is off. When sure, it
// decides the value: null by the causes given, not null without any. Otherwise
// it does nothing, and what was before counts.
func (p *proof) null(a assignment) (causes []cause, sure bool) {
	h := a.steps[a.step].Handler
	v := a.value
	if !h.IsCritical() {
		if a.standIn == nil {
			return []cause{a.off()}, false
		}
		v = a.standIn
	}
	if v == nil {
		return nil, false // the stand-in of a critical handler was reported, or only a rule sets it
	}
	if chain := p.afterError(a); chain != nil {
		return chain, false
	}
	if v.IsNull() && !h.IsCritical() {
		return []cause{newCause(h, v.Span, fmt.Sprintf("the fallback of %q sets shared-state.%s to null", h.ID, a.key.Name))}, true
	}
	for _, read := range v.Reads() {
		// A critical handler that reads a null unguarded is reported itself.
		passes := !read.Guarded && !h.IsCritical() || passesNull(v)
		if !passes || len(read.Path) < 2 {
			continue
		}
		if chain := p.whyNull(read.Path, a.step); chain != nil {
			l := newCause(h, a.key.Span, fmt.Sprintf("%q sets shared-state.%s from it", h.ID, a.key.Name))
			if !h.IsCritical() {
				l = newCause(h, v.Span, fmt.Sprintf("the fallback of %q sets shared-state.%s from it", h.ID, a.key.Name))
			}
			return append([]cause{l}, chain...), true
		}
	}
	return nil, true
}

// afterError gives the causes of a null that a critical handler leaves when it
// goes on after an error.
func (p *proof) afterError(a assignment) []cause {
	h := a.steps[a.step].Handler
	if !h.IsCritical() {
		return nil
	}
	for _, rule := range h.OnError {
		if !rule.GoesOn() {
			continue
		}
		if v := rule.Result.Get(a.key.Name); v.IsNull() {
			at := rule.PlaceOf("then", rule.Span)
			if v != nil {
				at = v.Span
			}
			return []cause{newCause(h, at, fmt.Sprintf("%q goes on after an error without setting shared-state.%s", h.ID, a.key.Name))}
		}
	}
	return nil
}

// off is the cause of a handler that sets a name unless it is off.
func (a assignment) off() cause {
	h := a.steps[a.step].Handler
	return newCause(h, a.key.Span, fmt.Sprintf("%q sets shared-state.%s; it is not critical, so it may be off", h.ID, a.key.Name))
}

func newCause(h *tree.Handler, at diag.Span, message string) cause {
	return cause{handler: h, Related: diag.Related{Span: at, Message: message}}
}

// passesNull tells whether a value is nothing but a chain of members read through
// ?., which passes a null on.
func passesNull(v *expr.Value) bool {
	e := v.Expr()
	return e != nil && strings.Contains(e.Source, "?.") && !strings.Contains(e.Source, "??") &&
		!strings.ContainsAny(strings.TrimSpace(e.Source), " \t\n()")
}

// neverSet tells whether no handler at all sets a name that is null at first
// before a step.
func (p *proof) neverSet(name string, step int) bool {
	first, declared := p.firstValue(name, step)
	if !declared || first != nil {
		return false
	}
	if slices.ContainsFunc(p.sets[name], func(a assignment) bool {
		return a.step < step && !p.apart(a.step, step) && p.localTo(name, a.step) == p.localTo(name, step)
	}) {
		return false
	}
	if p.flow == nil {
		return true
	}
	return p.flow.SharedState.Get(name) == nil || len(p.kept[name]) == 0
}
