package check

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/steps"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// Pipelines checks each pipeline, called ones before their callers. It checks them in parallel, since they only
// read shared data. It returns their steps for checks that look at several pipelines.
func Pipelines(w *merge.Whole, r *diag.Reporter) []*steps.Pipeline {
	configs := configOutlines(w)
	settleTimes(w, configs, r)
	pipelines := make([]*steps.Pipeline, len(w.Bundle.Pipelines))
	for level, left := 0, len(pipelines); left > 0; level++ {
		var now []int // pipelines whose called pipelines are all checked
		for i, p := range w.Bundle.Pipelines {
			if p.Level == level {
				now = append(now, i)
			}
		}
		left -= len(now)
		diag.InParallel(len(now), r, func(i int, r *diag.Reporter) {
			p := steps.Of(w.Bundle.Pipelines[now[i]], w.Bundle, w.Types)
			pipelines[now[i]] = p
			if len(p.Steps) <= merge.MaxHandlers { // larger ones are invalid, and nothing uses their steps
				checkPipeline(&walk{Whole: w, Reporter: r, Pipeline: p, configKnown: configs, state: p.State})
			}
		})
	}
	checkStages(w, pipelines, r)
	return pipelines
}

// configOutlines returns what is known of the live settings.
func configOutlines(w *merge.Whole) map[string]*typing.Outline {
	out := make(map[string]*typing.Outline)
	for _, config := range w.Bundle.Configs {
		if config.Contract.Outline() != nil {
			out[config.Name] = config.Contract.Outline()
		}
	}
	return out
}

// checkPipeline checks one pipeline.
func checkPipeline(c *walk) {
	p := c.Declared
	checkState(c.Pipeline, c.Reporter)
	checkMaxState(c.Pipeline, c.Reporter)
	checkFinallyPlace(p, c.Reporter)
	c.checkTargets()
	c.checkRetention()
	checkNotify(p, c.Reporter)
	checkPlaceholders(c.Whole, c.Pipeline, c.Reporter)
	c.payload = c.PayloadOf(p.On)
	if e := p.When.Expr(); e != nil {
		e.Compile(&expr.Scope{
			Parsed: c.Parsed, Roots: []string{"event", "configs", "flow"}, Configs: c.Configs, Payload: c.payload,
			ConfigOutlines: c.configKnown, KeyOf: c.computesKey(),
		}, datum.BoolKind, c.Reporter)
		c.facts = whenFacts(e)
	}
	checkAdded(c)
	c.stages()
	c.checkOutputs()
	c.Sound = !diag.HasErrors(c.Found)
}

// checkAdded checks the fields of add-ons.
func checkAdded(c *walk) {
	for _, s := range c.Bundle.Language.Sections("pipelines") {
		if v := c.Declared.AddedField(s.Key()); v != nil && s.Check != nil {
			on := c.Checking(c.Reporter)
			on.Pipeline, on.Payload, on.Declare = c.Declared, c.payload, nil
			s.Check(v, on)
		}
	}
}

func servesAlone(p *tree.Pipeline) bool {
	start := p.Start()
	return start != nil && start.ServesAlone()
}

// checkState reports names that both the flow and the run declare.
func checkState(p *steps.Pipeline, r *diag.Reporter) {
	kept := p.FlowState().Keys()
	for _, k := range p.Declared.SharedState.Keys() {
		other, taken := expr.FindKey(kept, k.Name)
		if !taken {
			continue
		}
		r.Report(diag.Diagnostic{
			Span: k.Span, Code: rules.StateTwice,
			Message: fmt.Sprintf("shared-state.%s is declared by the pipeline and by its flow %q", k.Name, p.Flow.ID),
			Hint:    "leave it out here to keep it between the events of one key, or rename it",
			Related: []diag.Related{{Span: other.Span, Message: "declared by the flow"}},
		})
	}
}

// checkMaxState reports a shared state that exceeds its limit initially.
func checkMaxState(p *steps.Pipeline, r *diag.Reporter) {
	data, err := datum.FormatJSON(p.State)
	if err != nil || int64(len(data)) <= int64(p.Declared.MaxState) {
		return // already reported
	}
	at := p.Declared.PlaceOf("max-state", p.Declared.PlaceOf("id", p.Declared.Span))
	r.Errorf(at, rules.MaxState, "raise max-state, or begin with less",
		"the first values of the shared state are %d bytes as JSON, max-state is %d", len(data), p.Declared.MaxState)
}

// notYet is the remedy for parts that do nothing yet.
const notYet = "nothing happens there yet"

// checkStages warns about pipelines that do nothing yet. An exception is a pipeline that declares this itself
// and accepts an event that others emit. Without it, nobody would serve the event.
func checkStages(w *merge.Whole, all []*steps.Pipeline, r *diag.Reporter) {
	var sent map[string]bool // types of events; nil until needed
	for _, p := range all {
		if len(p.Declared.Stages) > 0 || w.Blamed(p.Declared.Span) || moves(p) || servesAlone(p.Declared) {
			continue
		}
		if sent == nil {
			sent = sentEvents(w, all)
		}
		hint := notYet
		if slices.ContainsFunc(p.Declared.On, func(event string) bool { return sent[event] || len(w.Bundle.Awaiting(event)) > 0 }) {
			if p.Declared.PlaceOf("stages", diag.Span{}) != (diag.Span{}) {
				continue
			}
			hint += "; write stages: [] if nothing is to happen"
		}
		r.Warnf(p.Declared.PlaceOf("id", p.Declared.Span), rules.Placeholder, hint, "pipeline %q has no stages", p.Declared.ID)
	}
}

// sentEvents returns the types of events that handlers emit.
func sentEvents(w *merge.Whole, all []*steps.Pipeline) map[string]bool {
	sent := map[string]bool{}
	for _, p := range all {
		for _, h := range p.Steps {
			if e, ok := w.Types.Emission(h.Handler); ok && !e.Task && e.Type != nil {
				if event, ok := e.Type.Text(); ok {
					sent[event] = true
				}
			}
		}
	}
	return sent
}

// checkPlaceholders warns about stages and handlers that do nothing yet.
func checkPlaceholders(w *merge.Whole, p *steps.Pipeline, r *diag.Reporter) {
	for _, s := range p.Declared.Stages {
		if len(s.Handlers) == 0 && len(s.Choose) == 0 && s.ForEach == nil && !w.Blamed(s.Span) {
			r.Warnf(s.PlaceOf("id", s.Span), rules.Placeholder, notYet, "stage %q has no handlers", s.ID)
		}
	}
	for _, h := range p.Steps {
		if h.IsPlaceholder() && !w.Blamed(h.Span) {
			r.Warnf(h.PlaceOf("id", h.Span), rules.Placeholder,
				"name its type, such as request: {…}; known: "+strings.Join(tree.OwnTypes(diag.SortedKeys(w.Types)), ", "),
				"handler %q does nothing", h.ID)
		}
	}
}

// moves reports whether each event of the pipeline changes the state of the entity. Then the pipeline needs no
// stage.
func moves(p *steps.Pipeline) bool {
	if p.Flow == nil || p.Flow.States == nil || len(p.Declared.On) == 0 {
		return false
	}
	for _, event := range p.Declared.On {
		if !slices.ContainsFunc(p.Flow.States.Transitions, func(t *tree.Transition) bool { return slices.Contains(t.On, event) }) {
			return false
		}
	}
	return true
}
