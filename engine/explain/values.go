package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/store"
)

// This file reconstructs the values that conditions were evaluated with.

// decisions evaluates the conditions before the handler again, in order, with the values of that
// time as far as they are known.
func (x *explainer) decisions(ctx context.Context) error {
	over := x.leftUnasked()
	for _, q := range x.questions() {
		if q.value.IsNull() {
			continue
		}
		d := decisionOf(q.what, q.value)
		if !over && x.out.Handler != nil {
			if err := x.ask(ctx, &d, q.value, q.before); err != nil {
				return err
			}
		}
		over = over || d.Result == q.ends
		x.out.Decisions = append(x.out.Decisions, d)
	}
	return nil
}

// leftUnasked reports whether the handler was skipped before its conditions were evaluated: by a
// switch or a fallback, without a fallback result.
func (x *explainer) leftUnasked() bool {
	h := x.out.Handler
	if h == nil || h.Outcome != model.OutcomeSkipped || x.s.StandsIn() {
		return false
	}
	return strings.HasPrefix(h.Reason, "switched off at ") || strings.HasPrefix(h.Reason, "fallback")
}

// A question is a condition before a handler.
type question struct {
	what   string      // as in [Decision]
	value  *expr.Value // null for none, which is not evaluated
	before int         // handlers from this position on were decided later
	ends   string      // the result that ends the evaluation
}

// questions lists the conditions in the order of the run: of the stage, of its branches up to the
// handler's own, of the handler. The value of its rate limit, and its times by settings, come last.
func (x *explainer) questions() []question {
	stage := x.plan.Stages[x.s.Stage]
	first := stage.Steps[0].Position
	out := []question{{"enabled of the stage", stage.Declared.Enabled, first, "false"}}
	if own := x.s.Handler.Branch; own != nil {
		for _, b := range stage.Declared.Choose[:own.Number()] {
			q := question{fmt.Sprintf("when of branch %d", b.Number()), b.When, first, "true"} // another branch is taken
			if b == own {
				q.ends = "false"
			}
			out = append(out, q)
		}
	}
	out = append(out, question{"enabled", x.s.Handler.Enabled, x.s.Position, "false"})
	if l := x.s.Handler.RateLimit; l != nil {
		out = append(out, question{"per of rate-limit", l.Per, x.s.Position, ""})
	}
	for _, name := range []string{"timeout", "deadline"} {
		out = append(out, question{name, x.s.Handler.Live[name], x.s.Position, ""})
	}
	return out
}

// decisionOf describes a condition that was not evaluated.
func decisionOf(what string, v *expr.Value) Decision {
	d := Decision{What: what, File: v.Span.File, Line: v.Span.Start.Line, Column: v.Span.Start.Column, Result: "not_asked"}
	if e := v.Expr(); e != nil {
		d.Source = e.Source
	} else if data, ok := v.Literal(); ok {
		d.Source = fmt.Sprint(data)
	}
	return d
}

// ask evaluates a condition again.
func (x *explainer) ask(ctx context.Context, d *Decision, v *expr.Value, before int) error {
	e := v.Expr()
	if e == nil {
		d.Result = d.Source
		return nil
	}
	env, err := x.env(ctx, v.Reads(), before)
	if err != nil {
		return err
	}
	d.Trace = e.Trace(ctx, env)
	d.Result = d.Trace.Outcome
	if got, err := d.Trace.Result(); err == nil {
		d.Result = expr.ShowValue(got)
	}
	return inTime(ctx)
}

// env returns the roots that an expression could read at the time. Handlers from a position on had
// not been decided then.
func (x *explainer) env(ctx context.Context, reads []datum.Read, before int) (datum.Env, error) {
	configs, err := x.configs(ctx, reads)
	if err != nil {
		return nil, err
	}
	return datum.Env{
		"event":             model.EventData(x.record.Event),
		planner.SharedRoot:  x.shared(reads, before),
		planner.SourcesRoot: x.sources(before),
		"configs":           configs,
		"flow":              x.flow(),
		"run":               x.run(),
		"item":              datum.Unknown{Why: "items are not kept"},
	}, nil
}

// run returns the run as expressions of the handler read it.
func (x *explainer) run() map[string]any {
	out := map[string]any{"id": x.record.ID, "pipeline": x.record.Pipeline, "started": model.TimeData(x.saved.Began)}
	if x.saved.Closing != "" {
		out["status"], out["error"] = string(x.saved.Closing), any(datum.Unknown{Why: "see the error of the run"})
	}
	return out
}

// flow returns the entity in the form of expressions.
func (x *explainer) flow() map[string]any {
	flow := map[string]any{"id": x.record.Flow, "key": x.record.Key, "state": any(nil)}
	if x.plan.Flow != nil && x.plan.Flow.States != nil {
		flow["state"] = planner.StateOf(x.plan.Flow, x.saved.State)
	}
	return flow
}

// shared returns the shared state before a position. A name that was written later is unknown if
// its old value was too large to keep.
func (x *explainer) shared(reads []datum.Read, before int) map[string]any {
	out := map[string]any{}
	for _, n := range x.plan.Shared {
		out[n.Name] = n.Value
		if raw, ok := x.saved.Shared.Get(n.Name); ok {
			if value, err := datum.ParseJSON(raw); err == nil {
				out[n.Name] = value
			}
		}
		// What the handler itself saw comes first, then what a later one found and replaced. The
		// current value counts only if nothing has written the name since.
		if raw, ok := x.saw.Get(n.Name); ok {
			if value, err := datum.ParseJSON(raw); err == nil {
				out[n.Name] = value
				continue
			}
		}
		if raw, known := x.replaced(n.Name, before); known {
			if value, err := datum.ParseJSON(raw); err == nil {
				out[n.Name] = value
				continue
			}
		}
		if by := x.laterWriter(n.Name, before); by != "" {
			out[n.Name] = datum.Unknown{Why: by + " has changed it since"}
			if path := (datum.Path{planner.SharedRoot, n.Name}); slices.ContainsFunc(reads,
				func(r datum.Read) bool { return r.Path.Overlaps(path) }) {
				x.missing("shared-state.%s as it was then: %s has changed it since", n.Name, by)
			}
		}
	}
	return out
}

// laterWriter returns a handler that has written a name of the shared state and was decided after
// the condition.
func (x *explainer) laterWriter(name string, before int) string {
	if !slices.Contains(x.saved.Wrote, name) {
		return ""
	}
	for _, s := range x.plan.Steps[min(before, len(x.plan.Steps)):] {
		h := x.find(s.Path)
		if h == nil || h.Outcome != model.OutcomeSucceeded && !s.StandsIn() {
			continue
		}
		for _, w := range s.Writes {
			if len(w.Path) > 1 && w.Path[0] == planner.SharedRoot && w.Path[1] == name && h.Finished != nil {
				return s.Path
			}
		}
	}
	return ""
}

// sources returns the outcomes of earlier handlers. Only responses that later handlers may read are
// stored.
func (x *explainer) sources(before int) map[string]any {
	out := map[string]any{}
	for _, saved := range x.saved.Handlers {
		s := x.plan.ByPath[saved.Path]
		if s == nil || s.Position >= before || saved.Outcome == "" {
			continue
		}
		source := map[string]any{"response": nil, "status": nil, "outcome": saved.Outcome}
		if saved.Status != 0 {
			source["status"] = saved.Status
		}
		if value, err := datum.ParseJSON(saved.Response); err == nil {
			source["response"] = value
		} else if !s.Keeps {
			source["response"] = datum.Unknown{Why: "the response of " + s.Path + " was not kept"}
		}
		out[s.Handler.ID] = source
	}
	return out
}

// configs returns the live settings of the time of the decision, from the audit.
func (x *explainer) configs(ctx context.Context, reads []datum.Read) (map[string]any, error) {
	out := map[string]any{}
	now := x.in.settings.ValuesFor(x.d)
	// Current values, unless the audit has a later change: below.
	maps.Copy(out, now)
	if x.out.At == nil {
		return out, nil
	}
	for _, r := range reads {
		if r.Path[0] != "configs" || len(r.Path) < 2 {
			continue
		}
		name := r.Path[1]
		// The node may not have known the latest changes.
		changes, err := x.in.audits.Audit(ctx, store.AuditFilter{
			Kind: store.AuditConfig, Name: name, Since: x.out.At.Add(-time.Second),
			Limit: 1000,
		})
		if err != nil {
			return nil, fmt.Errorf("read the audit: %w", err)
		}
		changes = slices.DeleteFunc(changes, func(a store.Audited) bool { return a.Name != name })
		for _, a := range slices.Backward(changes) {
			if a.Changed.After(*x.out.At) {
				out[name] = x.before(name, a)
				break
			}
			x.missing("whether the node knew the change of configs.%s of %s, right before", name, a.Changed.UTC().Format(time.RFC3339Nano))
		}
	}
	return out, nil
}

// before returns the value of a setting before a change.
func (x *explainer) before(name string, a store.Audited) any {
	if len(a.Before) == 0 {
		return x.d.Declared[name]
	}
	value, err := datum.ParseJSON(a.Before)
	if err != nil {
		return datum.Unknown{Why: "the audit cannot be read"}
	}
	return value
}
