package steps

import (
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/dsl/syntax"
	"procaas/dsl/tree"
)

// A Pipeline is a pipeline as a list of steps in the order of declaration, with what each sets.
type Pipeline struct {
	Declared *tree.Pipeline
	Flow     *tree.Flow     // nil if the pipeline has none
	State    map[string]any // declared names with initial values, including those of the flow

	Steps []Step
	Sets  map[string][]Assignment // by name, in the order of declaration
	Sound bool                    // no errors were found

	types tree.Types
	sets  [][]Assignment // by step: see Assignments
}

// Of returns the steps of a pipeline.
func Of(p *tree.Pipeline, b *tree.Bundle, types tree.Types) *Pipeline {
	out := &Pipeline{Declared: p, Flow: b.Index.Flows[p.Flow], State: make(map[string]any), Sets: make(map[string][]Assignment), types: types}
	for _, s := range p.Stages {
		out.Steps = append(out.Steps, OfStage(s)...)
	}
	out.sets = make([][]Assignment, len(out.Steps))
	for i := range out.Steps {
		out.sets[i] = out.assignments(i)
		for _, a := range out.sets[i] {
			out.Sets[a.Key.Name] = append(out.Sets[a.Key.Name], a)
		}
	}
	FirstValues(out.FlowState(), out.State)
	FirstValues(p.SharedState, out.State)
	return out
}

// A Step is a handler at its place in a pipeline.
type Step struct {
	*tree.Handler
	Stage *tree.Stage
}

// OfStage lists the handlers of a stage in the order of a run. A repeated stage ends with a step for the stage
// itself.
func OfStage(s *tree.Stage) []Step {
	out := make([]Step, 0, len(s.Handlers)+1) // one more for the stage itself
	for _, h := range s.Handlers {
		out = append(out, Step{Handler: h, Stage: s})
	}
	if s.Loop() != nil {
		out = append(out, Step{Handler: s.Loop(), Stage: s})
	}
	return out
}

// Inside reports whether a step belongs to one element of a repeated stage. The step for the stage itself does
// not.
func (s Step) Inside() bool { return s.Stage.Loop() != nil && !s.Loops() }

// Hides reports whether a step cannot see an earlier one, because that belongs to an element of another stage.
func (s Step) Hides(earlier Step) bool {
	return earlier.Inside() && (earlier.Stage != s.Stage || !s.Inside())
}

// Demands lists what must be true for a step to run: conditions of its stage and its own.
func (s Step) Demands(known *syntax.Cache) []string {
	return slices.Concat(s.Stage.Enabled.Expr().Conjuncts(known), s.Enabled.Expr().Conjuncts(known))
}

// UnderCondition reports whether an author's condition may leave out a step.
func (s Step) UnderCondition() bool { return !s.Enabled.IsNull() || !s.Stage.Enabled.IsNull() }

// EarlierConditions lists what the conditions read that are computed before a handler's own: the stage's, up to its branch.
func (s Step) EarlierConditions() []datum.Read {
	reads := s.Stage.Enabled.Reads()
	if s.Branch != nil {
		for _, b := range s.Stage.Choose[:s.Branch.Number()] {
			reads = append(reads, b.When.Reads()...)
		}
	}
	return reads
}

// DecidingReads lists the reads of all conditions that decide whether a handler runs.
func (s Step) DecidingReads() []datum.Read {
	earlier := s.EarlierConditions()
	if len(earlier) == 0 {
		return s.ConditionReads()
	}
	return append(earlier, s.ConditionReads()...)
}

// An Assignment is a place that sets a name of the shared state.
type Assignment struct {
	Of      *Pipeline
	At      int // of its step
	Key     expr.Key
	Value   *expr.Value // value after success; nil if only a rule of on-error sets it
	StandIn *expr.Value // value of the fallback; nil if there is none
}

// Step returns the step of the assignment.
func (a Assignment) Step() Step { return a.Of.Steps[a.At] }

// Assignments lists what handler i sets. Nobody may change the list.
func (p *Pipeline) Assignments(i int) []Assignment {
	if i < len(p.sets) {
		return p.sets[i]
	}
	return nil // the step of the outputs
}

func (p *Pipeline) assignments(i int) []Assignment {
	h := p.Steps[i].Handler
	var out []Assignment
	add := func(v *expr.Value) {
		for j, k := range v.Keys() {
			out = append(out, Assignment{Of: p, At: i, Key: k, Value: v.Elems[j]})
		}
	}
	if p.types.SetsState(h) {
		add(h.Body)
	}
	add(h.Result)
	for _, rule := range h.OnError {
		for _, k := range rule.Result.Keys() {
			if !slices.ContainsFunc(out, func(a Assignment) bool { return a.Key.Name == k.Name }) {
				out = append(out, Assignment{Of: p, At: i, Key: k})
			}
		}
	}
	if h.Fallback == nil {
		return out
	}
	for j, k := range h.Fallback.Result.Keys() {
		v := h.Fallback.Result.Elems[j]
		at := slices.IndexFunc(out, func(a Assignment) bool { return a.Key.Name == k.Name })
		if at < 0 {
			out = append(out, Assignment{Of: p, At: i, Key: k, StandIn: v})
			continue
		}
		out[at].StandIn = v
	}
	return out
}

// FlowState returns the state that the flow keeps between events of a key, or nil.
func (p *Pipeline) FlowState() *expr.Value {
	if p.Flow == nil {
		return nil
	}
	return p.Flow.SharedState
}

// LocalTo returns the repeated stage whose elements own a name, as seen from a step. It returns nil if the name
// belongs to the run.
func (p *Pipeline) LocalTo(name string, at int) *tree.Stage {
	if at >= len(p.Steps) || !p.Steps[at].Inside() {
		return nil
	}
	if p.Steps[at].Stage.SharedState.Get(name) != nil {
		return p.Steps[at].Stage
	}
	return nil
}

// FirstValue returns the initial value of a name, as seen from a step.
func (p *Pipeline) FirstValue(name string, at int) (first any, declared bool) {
	if s := p.LocalTo(name, at); s != nil {
		return s.SharedState.Get(name).Literal()
	}
	first, declared = p.State[name]
	return first, declared
}

// Keeps reports whether the flow keeps a name between events.
func (p *Pipeline) Keeps(name string) bool {
	return p.FlowState().Get(name) != nil
}

// FirstValues adds the declared names of a shared state with their initial values.
func FirstValues(v *expr.Value, into map[string]any) {
	for i, k := range v.Keys() {
		into[k.Name], _ = v.Elems[i].Literal()
	}
}

// SourceOf returns the handler whose outcome a path reads, or "".
func SourceOf(p datum.Path) string {
	if len(p) < 2 || p[0] != "sources" || p[1] == datum.Wildcard {
		return ""
	}
	return p[1]
}
