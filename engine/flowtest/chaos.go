package flowtest

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// A relaxation says what a test cannot expect when a handler is left out.
type relaxation struct {
	handlers  map[string]bool // paths whose outcome and calls may differ
	names     map[string]bool // of the shared state
	events    map[string]bool // types that may not be emitted, or differ
	pipelines map[string]bool // that serve them
}

// relax finds all that may depend on a handler. Base is the test as it is.
//
// What a handler reads is known from its expressions, so all that may differ is
// what the handler fills, the handlers that read it, what they fill, and so on; and
// what comes of the events that any of them emits. All else must not.
func (s *Suite) relax(off string, base *trial) relaxation {
	r := relaxation{
		handlers: map[string]bool{off: true}, names: map[string]bool{}, events: map[string]bool{}, pipelines: map[string]bool{},
	}
	for grown := true; grown; {
		before := len(r.handlers) + len(r.names) + len(r.events)
		for _, plan := range s.plans {
			r.spread(plan)
			s.spreadCalls(&r, plan)
		}
		for _, e := range base.emits {
			if !r.handlers[e.Path] || r.events[e.Type] {
				continue
			}
			r.events[e.Type] = true
			for _, p := range s.Bundle.On(e.Type) {
				r.pipelines[p.ID] = true
				for _, path := range s.names.paths {
					r.handlers[path] = r.handlers[path] || strings.HasPrefix(path, p.ID+"/")
				}
			}
		}
		maps.DeleteFunc(r.handlers, func(_ string, in bool) bool { return !in })
		grown = len(r.handlers)+len(r.names)+len(r.events) > before
	}
	return r
}

// spreadCalls adds the handlers that call a pipeline of which a handler may differ, and
// all handlers of a pipeline that is called by one.
func (s *Suite) spreadCalls(r *relaxation, plan *planner.Plan) {
	for _, stage := range plan.Stages {
		for _, step := range stage.Handlers() {
			if undo := step.Handler.Compensation(); undo != nil && r.handlers[step.Path] {
				r.handlers[undo.Path] = true
			}
			if step.Handler.Call == nil {
				continue
			}
			called := step.Handler.Call.Pipeline + "/"
			for _, path := range s.names.paths {
				switch {
				case !strings.HasPrefix(path, called):
				case r.handlers[step.Path]:
					r.handlers[path] = true
				case r.handlers[path]:
					r.handlers[step.Path] = true
				}
			}
		}
	}
}

// spread adds the handlers of a pipeline that read what others of it fill, or what
// is kept of a name that may differ.
func (r *relaxation) spread(plan *planner.Plan) {
	var sources []string
	for _, stage := range plan.Stages {
		steps := stage.Handlers()
		if loop := stage.Loop(); loop != nil {
			steps = append(slices.Clip(steps), loop) // which reads what its elements leave
		}
		for _, step := range steps {
			for _, read := range step.Reads {
				if len(read.Path) == 0 {
					continue
				}
				whole := len(read.Path) == 1
				switch read.Path[0] {
				case "sources":
					if len(sources) > 0 && (whole || slices.Contains(sources, read.Path[1])) {
						r.handlers[step.Path] = true
					}
				case "shared-state":
					if len(r.names) > 0 && (whole || r.names[read.Path[1]]) {
						r.handlers[step.Path] = true
					}
				}
			}
			if step == stage.Loop() && slices.ContainsFunc(stage.Handlers(), func(s *planner.Step) bool { return r.handlers[s.Path] }) {
				r.handlers[step.Path] = true
			}
			if !r.handlers[step.Path] {
				continue
			}
			sources = append(sources, step.Handler.ID)
			for _, w := range step.Writes {
				if w.Path[0] == "shared-state" && len(w.Path) > 1 {
					r.names[w.Path[1]] = true
				}
			}
		}
	}
}

// replaced returns an expectation with the fields that another one gives in place of
// its own.
func (e *Expect) replaced(by *Expect) *Expect {
	out := *e
	out.Places = by.Places.Before(e.Places)
	from, to := reflect.ValueOf(by).Elem(), reflect.ValueOf(&out).Elem()
	for i := range from.NumField() {
		if f := from.Type().Field(i); f.Tag.Get("yaml") != "-" && !from.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
	return &out
}

// variants lists the ways in which chaos runs a test again: with a crash at each of
// its checkpoints, and without each handler that is not critical and took part.
func (t *trial) variants() []Variant {
	var out []Variant
	for at := 1; at <= t.v.Saves(); at++ {
		out = append(out, Variant{CrashAt: at}, Variant{CrashAt: at, CrashAfter: true})
	}
	var seen []string
	for _, r := range t.runs {
		for _, h := range r.Handlers {
			pipeline, _, _ := strings.Cut(h.Path, "/") // which the run may have called
			plan := t.suite.plans[pipeline]
			took := h.Outcome == model.OutcomeSucceeded || h.Outcome == model.OutcomeFailed
			if plan == nil || !took || slices.Contains(seen, h.Path) {
				continue
			}
			if step := plan.Step(h.Path); step != nil && !step.Handler.IsCritical() {
				seen = append(seen, h.Path)
			}
		}
	}
	for _, path := range seen {
		if longest(t.test.Controls, path) == "" {
			out = append(out, Variant{Off: path})
		}
	}
	return out
}
