package check

import (
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// settleTimes compiles the durations that live settings decide, and sets those that the files lead to. Later checks, plans and
// tools look at these.
func settleTimes(w *merge.Whole, known map[string]*typing.Outline, r *diag.Reporter) {
	configs := map[string]any{}
	for _, c := range w.Bundle.Configs {
		configs[c.Name] = c.Value
	}
	settle := func(times tree.Times, name string, into *time.Duration) {
		v := times[name]
		if v == nil {
			return
		}
		on := &diag.Reporter{}
		v.Computed.Compile(&expr.Scope{Parsed: w.Parsed, Roots: []string{"configs"}, Configs: w.Configs, ConfigOutlines: known}, datum.DurationKind, on)
		for _, d := range on.Found {
			r.Report(d)
		}
		if diag.HasErrors(on.Found) {
			delete(times, name)
			return
		}
		d, _, err := times.Time(name, configs)
		if err != nil {
			r.Errorf(v.Span, rules.Value, "write text such as 300ms or 5s below configs", "field %q with the configs of the files: %s", name, err)
			return
		}
		*into = d
	}
	for _, p := range w.Bundle.Pipelines {
		settle(p.Live, "deadline", &p.Deadline)
		for _, s := range p.Stages {
			settle(s.Live, "deadline", &s.Deadline)
			for _, h := range s.Handlers {
				settle(h.Live, "deadline", &h.Deadline)
				settle(h.Live, "timeout", &h.Timeout)
			}
		}
	}
}
