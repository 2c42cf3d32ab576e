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

// A walk visits the stages and handlers of a pipeline in order. At each place it knows the types of the shared
// state and of responses, and what conditions have tested.
type walk struct {
	*merge.Whole
	*diag.Reporter // of this pipeline
	*steps.Pipeline
	configKnown map[string]*typing.Outline

	// What is known at the current place.
	state   map[string]any // declared names with initial values, including those of an element
	payload *typing.Outline
	view
	facts   []expr.Fact
	element *element // of the current repeated stage, or nil
	seen    view     // what is known wherever the run may have ended; only with finally
}

// A view is what is known of the shared state and of responses at one place of a pipeline.
type view struct {
	known     map[string]*typing.Outline // by name of the shared state
	responses map[string]*typing.Outline // by handler

	// maybe has what only handlers with a condition set, by path.
	maybe map[string]given
}

// A given is what is known of a value while certain conditions are true.
type given struct {
	demands []string
	outline *typing.Outline
}

// clone copies the maps, so that branches do not change each other. It shares outlines, which never change.
func (v view) clone() view {
	return view{maps.Clone(v.known), maps.Clone(v.responses), maps.Clone(v.maybe)}
}

// or returns what is known after two branches join. It drops what only one branch or a condition knows.
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

// response returns what is known of a handler's response, or nil if it has not run in this branch.
func (v view) response(id string) *typing.Outline {
	if o, ok := v.responses[id]; ok {
		return o
	}
	return &typing.Outline{Shape: datum.NullShape}
}

// stages checks the stages and handlers of the pipeline in order.
func (c *walk) stages() {
	c.beginState()
	if len(c.Declared.Finally) > 0 {
		c.seen = c.view.clone()
	}
	always := c.facts
	at := 0
	for _, s := range c.Declared.Stages {
		if s.Final {
			c.view = c.anyEnd()
		}
		var before view
		if !s.Enabled.IsNull() {
			before = c.view.clone()
		}
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
		// If the stage is disabled, nothing changes.
		if !s.Enabled.IsNull() {
			c.view = c.view.or(before)
		}
	}
}

// walkStage checks the handlers of a stage. at is the index of the first one. Each branch starts with what is
// known before the stage. Afterwards only what all branches agree on is known.
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
		if len(c.Declared.Finally) > 0 && !s.Final {
			c.seen = c.seen.or(c.view)
		}
	}
	join()
}

// mayTakeNone reports whether a run may skip all branches. withHandlers is how many branches have handlers.
func mayTakeNone(s *tree.Stage, withHandlers int) bool {
	return withHandlers < len(s.Choose) || s.Choose[len(s.Choose)-1].When != nil
}

// factsOf returns the facts of a branch: its condition is true, and those before it are false.
func factsOf(s *tree.Stage, b *tree.Branch) []expr.Fact {
	var out []expr.Fact
	for _, other := range s.Choose[:b.Number()-1] {
		out = append(out, other.When.Expr().Fails()...)
	}
	return append(out, b.When.Expr().Holds()...)
}

// forget drops what tests showed of a name that is set again.
func (c *walk) forget(name string) {
	key := expr.StateRoot + expr.Between + name
	c.facts = slices.DeleteFunc(slices.Clone(c.facts), func(f expr.Fact) bool { return f.Key == key || isUnder(f.Key, key) })
}
