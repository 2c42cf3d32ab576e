package check

import (
	"maps"
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/steps"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// A walk goes through the stages and handlers of a pipeline in order, with what is known at
// each place of the shared state, of responses, and of what conditions have tested.
type walk struct {
	*merge.Whole
	*diag.Reporter // of this pipeline
	*steps.Pipeline
	configKnown map[string]*typing.Outline

	// What is known where the walk has got to.
	state   map[string]any // declared names with their first values, those of an element included
	payload *typing.Outline
	view
	facts   []expr.Fact
	element *element // of the repeated stage that the walk is inside of; nil elsewhere
}

// A view is what is known of the shared state and of responses at one place of a
// pipeline.
type view struct {
	known     map[string]*typing.Outline // of names of the shared state
	responses map[string]*typing.Outline // by handler

	// maybe holds what only handlers under a condition give, by what reads it.
	maybe map[string]given
}

// A given is what is known of a value wherever certain conditions are true.
type given struct {
	demands []string
	outline *typing.Outline
}

// clone copies the maps, so that one way through the pipeline does not change the other. The
// outlines are shared: they are never changed once they are made.
func (v view) clone() view {
	return view{maps.Clone(v.known), maps.Clone(v.responses), maps.Clone(v.maybe)}
}

// or is what is known where one may have come two ways. What is known of a name on one way
// only is not known at all, and what only a condition gives is given up.
func (v view) or(w view) view {
	out := view{make(map[string]*typing.Outline, len(v.known)), make(map[string]*typing.Outline, len(v.responses)), make(map[string]given)}
	for name, o := range v.known {
		out.known[name] = typing.Either(o, w.known[name])
	}
	for _, responses := range []map[string]*typing.Outline{v.responses, w.responses} {
		for id := range responses {
			out.responses[id] = typing.Either(v.response(id), w.response(id))
		}
	}
	return out
}

// response is what is known of the response of a handler; one that has not run on
// this way has none.
func (v view) response(id string) *typing.Outline {
	if o, ok := v.responses[id]; ok {
		return o
	}
	return &typing.Outline{Shape: datum.NullShape}
}

// stages checks the stages and handlers of the pipeline in order.
func (c *walk) stages() {
	c.beginState()
	always := c.facts
	at := 0
	for _, s := range c.Declared.Stages {
		before := c.view.clone()
		checkLoopFields(c.Whole, c.Pipeline, s, c.Reporter)
		c.checkStage(s, at)
		inStage := slices.Concat(always, s.Enabled.Expr().Holds())
		if s.Loop() != nil {
			c.facts = inStage
			leave := c.enterLoop(s, at)
			c.checkBranches(s, at)
			c.walkStage(s, at, inStage)
			leave()
			c.facts = inStage
			c.checkHandler(at + len(s.Handlers))
			c.settle(at + len(s.Handlers))
		} else {
			c.walkStage(s, at, inStage)
		}
		c.facts = always
		at += len(steps.OfStage(s))
		// A stage that is off leaves everything as it was before.
		if !s.Enabled.IsNull() {
			c.view = c.view.or(before)
		}
	}
}

// walkStage checks the handlers of a stage, the first of which is the at-th. Each
// branch begins with what is known before all of them; behind them is known what
// is so whichever was taken.
func (c *walk) walkStage(s *tree.Stage, at int, facts []expr.Fact) {
	var branch *tree.Branch
	var base view
	var ends []view
	leave := func() {
		if branch == nil {
			return
		}
		ends = append(ends, c.view)
		c.view = base.clone()
		branch = nil
	}
	join := func() {
		leave()
		if len(ends) == 0 {
			return
		}
		out := ends[0]
		for _, end := range ends[1:] {
			out = out.or(end)
		}
		if mayTakeNone(s, len(ends)) {
			out = out.or(base)
		}
		c.view, ends = out, nil
	}
	c.facts = facts
	for i, h := range s.Handlers {
		switch {
		case h.Branch == branch:
		case h.Branch == nil:
			join()
			c.facts = facts
		default:
			if leave(); len(ends) == 0 {
				base = c.view.clone()
			}
			branch = h.Branch
			c.facts = slices.Concat(facts, factsOf(s, branch))
		}
		c.checkHandler(at + i)
		c.settle(at + i)
	}
	join()
}

// mayTakeNone reports whether a run may go past all handlers of the branches, of
// which so many have handlers.
func mayTakeNone(s *tree.Stage, withHandlers int) bool {
	return withHandlers < len(s.Choose) || s.Choose[len(s.Choose)-1].When != nil
}

// factsOf are the facts that hold in a branch: its own condition, and none of
// those before it.
func factsOf(s *tree.Stage, b *tree.Branch) []expr.Fact {
	var out []expr.Fact
	for _, other := range s.Choose[:b.Number()-1] {
		out = append(out, other.When.Expr().Fails()...)
	}
	return append(out, b.When.Expr().Holds()...)
}

// forget drops what tests have shown of a name of the shared state that is set
// anew.
func (c *walk) forget(name string) {
	key := expr.StateRoot + expr.Between + name
	c.facts = slices.DeleteFunc(slices.Clone(c.facts), func(f expr.Fact) bool { return f.Key == key || isUnder(f.Key, key) })
}
