package dsl

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// A pipelineCheck checks one pipeline and remembers what the proof of
// degradation needs.
type pipelineCheck struct {
	*checker
	*diag.Reporter // of this pipeline; hides that of the checker
	pipeline       *tree.Pipeline
	flow           *tree.Flow // nil when the pipeline has none

	state map[string]any // declared names with their first values, those of the flow included

	// What is known where the check has got to.
	payload *typing.Outline
	view
	facts   []expr.Fact
	element *element // of the repeated stage that the check is inside of; nil elsewhere

	steps []step // all handlers in the order of declaration
	sound bool   // no errors were found in it

	sets map[string][]assignment // by name, in the order of declaration

	// What each step may read and set in all, for advice, which asks often.
	read  [][]datum.Read
	wrote [][]string
}

// A step is a handler at its place in a pipeline.
type step struct {
	*tree.Handler
	stage *tree.Stage
}

// checkPipeline checks a pipeline by itself. It only reads what is shared.
func (c *checker) checkPipeline(p *tree.Pipeline, r *diag.Reporter) *pipelineCheck {
	pc := &pipelineCheck{checker: c, Reporter: r, pipeline: p, flow: c.Bundle.Index.Flows[p.Flow], state: make(map[string]any)}
	for _, s := range p.Stages {
		pc.steps = append(pc.steps, stepsOf(s)...)
	}
	if len(pc.steps) > merge.MaxHandlers {
		return pc // which was reported; it is not sound, so nobody builds on it
	}
	pc.declareState()
	pc.checkMaxState()
	pc.checkPlaceholders()
	pc.payload = c.payloadOf(p.On)
	if e := p.When.Expr(); e != nil {
		e.Compile(&expr.Scope{
			Parsed: c.Parsed, Roots: []string{"event", "configs", "flow"}, Configs: c.Configs, Payload: pc.payload,
			ConfigOutlines: c.configKnown,
		}, datum.BoolKind, r)
		pc.facts = whenFacts(e)
	}
	pc.checkQueue()
	pc.walk()
	pc.checkOutputs()
	pc.sound = !diag.HasErrors(r.Found)
	return pc
}

// declareState merges the names that live with the flow and those that live
// with the run into one namespace.
func (c *pipelineCheck) declareState() {
	var kept []expr.Key
	if c.flow != nil {
		kept = c.flow.SharedState.Keys()
		firstValues(c.flow.SharedState, c.state)
	}
	for _, k := range c.pipeline.SharedState.Keys() {
		other, taken := expr.FindKey(kept, k.Name)
		if !taken {
			continue
		}
		c.Report(diag.Diagnostic{
			Span: k.Span, Code: rules.StateTwice,
			Message: fmt.Sprintf("shared-state.%s is declared by the pipeline and by its flow %q", k.Name, c.flow.ID),
			Hint:    "leave it out here to keep it between the events of one key, or rename it",
			Related: []diag.Related{{Span: other.Span, Message: "declared by the flow"}},
		})
	}
	firstValues(c.pipeline.SharedState, c.state)
}

// checkMaxState reports a shared state that exceeds its bound from the start.
func (c *pipelineCheck) checkMaxState() {
	data, err := datum.FormatJSON(c.state)
	if err != nil || int64(len(data)) <= int64(c.pipeline.MaxState) {
		return // what cannot be encoded was reported
	}
	at := c.pipeline.PlaceOf("max-state", c.pipeline.PlaceOf("id", c.pipeline.Span))
	c.Errorf(at, rules.MaxState, "raise max-state, or begin with less",
		"the first values of the shared state are %d bytes as JSON, max-state is %d", len(data), c.pipeline.MaxState)
}

// checkPlaceholders warns about parts that have nothing to do yet.
func (c *pipelineCheck) checkPlaceholders() {
	const hint = "nothing happens there yet"
	if len(c.pipeline.Stages) == 0 && !c.Blamed(c.pipeline.Span) && !c.moves() && c.pipeline.Queue == nil {
		c.Warnf(c.pipeline.PlaceOf("id", c.pipeline.Span), rules.Placeholder, hint, "pipeline %q has no stages", c.pipeline.ID)
	}
	for _, s := range c.pipeline.Stages {
		if len(s.Handlers) == 0 && len(s.Choose) == 0 && s.ForEach == nil && !c.Blamed(s.Span) {
			c.Warnf(s.PlaceOf("id", s.Span), rules.Placeholder, hint, "stage %q has no handlers", s.ID)
		}
	}
	for _, h := range c.steps {
		if h.IsPlaceholder() && !c.Blamed(h.Span) {
			c.Warnf(h.PlaceOf("id", h.Span), rules.Placeholder,
				"name its type, such as request: {…}; known: "+strings.Join(tree.OwnTypes(diag.SortedKeys(c.Types)), ", "), "handler %q does nothing", h.ID)
		}
	}
}

// moves tells whether each event of the pipeline moves the entity from one state to
// another, so that it has something to do without any stage.
func (c *pipelineCheck) moves() bool {
	if c.flow == nil || c.flow.States == nil || len(c.pipeline.On) == 0 {
		return false
	}
	for _, event := range c.pipeline.On {
		if !slices.ContainsFunc(c.flow.States.Transitions, func(t *tree.Transition) bool { return slices.Contains(t.On, event) }) {
			return false
		}
	}
	return true
}

// declared reports names that are set but not declared, with the nearest
// declared one.
func (c *pipelineCheck) declared(h *tree.Handler, keys []expr.Key, what string) {
	for _, k := range keys {
		if c.element != nil {
			c.undeclaredInLoop(k, what)
			continue
		}
		if _, ok := c.state[k.Name]; ok {
			continue
		}
		hint := fmt.Sprintf("declare it in the pipeline: shared-state: {%s: null}", k.Name)
		if h.Into != "" {
			hint = h.OwnName(k.Name)
		}
		c.Errorf(k.Span, rules.Undeclared, c.SuggestOr(k.Name, diag.NamesIn(c.state), hint), "%s sets shared-state.%s, which is not declared",
			what, k.Name)
	}
}
