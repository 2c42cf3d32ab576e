package definitions

import (
	"fmt"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// An Arrival is an event whose turn in its key has come.
type Arrival struct {
	Event     model.Event
	Flow, Key string
	State     string         // of the automaton
	Configs   map[string]any // live settings
}

// Choose returns the pipeline that serves an event, or nil. candidates counts the pipelines for
// events of the type. The error is that of the condition of the returned pipeline.
func (d *Definition) Choose(a Arrival) (plan *planner.Plan, candidates int, err error) {
	for _, p := range d.Bundle.On(a.Event.Type) {
		if p.FlowID() != a.Flow {
			continue
		}
		candidates++
		serves, err := a.servedBy(p, d.Bundle.Flow(a.Flow))
		if err != nil || serves {
			return d.ByID[p.ID], candidates, err
		}
	}
	return nil, candidates, nil
}

// servedBy reports whether a pipeline accepts the event.
func (a Arrival) servedBy(p *tree.Pipeline, flow *tree.Flow) (bool, error) {
	if p.When.IsNull() {
		return true, nil
	}
	v, err := p.When.Eval(datum.Env{
		"event":   model.EventData(a.Event),
		"configs": a.Configs,
		"flow":    map[string]any{"id": a.Flow, "key": a.Key, "state": planner.StateOf(flow, a.State)},
	})
	if err != nil {
		return false, fmt.Errorf("when: %w", err)
	}
	serves, ok := v.(bool)
	if !ok {
		return false, fmt.Errorf("%s: when: want true or false, have %s", p.When.Span, model.KindOf(v))
	}
	return serves, nil
}
