package flowtest

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// A relaxation says what a test cannot expect if a handler is left out.
type relaxation struct {
	handlers  map[string]bool // paths whose outcome and calls may differ
	names     map[string]bool // of the shared state
	events    map[string]bool // types of events that may be missing or differ
	pipelines map[string]bool // pipelines that serve those
}

// relax finds everything that may depend on a handler. base is the unchanged test.
//
// The expressions of a handler show what it reads. So everything that may differ is what the
// handler sets, the handlers that read that, what they set, and so on, and the effects of the
// events that any of them emit. Nothing else may differ.
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

// spreadCalls adds the handlers that call an affected pipeline, and all handlers of a pipeline that
// an affected handler calls.
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

// spread adds the handlers of a pipeline that read what affected handlers set, or a kept name that
// may differ.
func (r *relaxation) spread(plan *planner.Plan) {
	var sources []string
	for _, stage := range plan.Stages {
		steps := stage.Handlers()
		if loop := stage.Loop(); loop != nil {
			steps = append(slices.Clip(steps), loop) // reads what its elements leave
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

// replaced returns an expectation with the fields of another one in place of its own.
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

// variants lists the variants of a test under chaos: a crash at each of its checkpoints, and
// without each non-critical handler that took part.
func (t *trial) variants() []Variant {
	var out []Variant
	for at := 1; at <= t.v.Saves(); at++ {
		out = append(out, Variant{CrashAt: at}, Variant{CrashAt: at, CrashAfter: true})
	}
	var seen []string
	for _, r := range t.runs {
		for _, h := range r.Handlers {
			pipeline, _, _ := strings.Cut(h.Path, "/") // the run may have called it
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
