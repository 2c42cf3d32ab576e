package engine

import "procaas/dsl"

// A Plan is a pipeline with its proof: which handlers of a stage must wait for
// which others, and why. It is immutable.
type Plan struct {
	Bundle   *dsl.Bundle
	Pipeline *dsl.Pipeline
	Flow     *dsl.Flow // nil when the pipeline has none
	Stages   []*PlannedStage

	steps map[string]*Step // by path
}

// A PlannedStage is a stage with its handlers in the order of declaration.
type PlannedStage struct {
	ID    string
	Steps []*Step
}

// A Step is a handler in a plan.
type Step struct {
	Handler *dsl.Handler
	Type    HandlerType // zero for a placeholder
	Path    string
	Stage   int
	Index   int // in its stage

	Reads  []dsl.Read // of all expressions: enabled, body, result, fallback
	Writes []Write
	After  []Edge // what it waits for within its stage; empty: it may start at once
}

// A Write is a path that a handler sets: a name of the shared state, or its own
// sources entry.
type Write struct {
	Path dsl.Path
	Span dsl.Span
}

// An Edge says that To waits for From, and proves it.
type Edge struct {
	From, To         *Step
	Why              string // "notify-driver reads shared-state.order, which get-order writes"
	FromSpan, ToSpan dsl.Span
}

// NewPlan proves which handlers of a pipeline may run in parallel.
func NewPlan(b *dsl.Bundle, p *dsl.Pipeline, types map[string]HandlerType) (*Plan, error) {
	panic("engine: NewPlan is not written yet")
}

// Step finds a handler by its path; nil when there is none.
func (p *Plan) Step(path string) *Step { return p.steps[path] }
