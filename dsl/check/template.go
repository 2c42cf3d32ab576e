package check

import (
	"fmt"

	"procaas/dsl/contracts"
	"procaas/dsl/diag"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// checkTemplates compiles the schemas of parameters, and warns of unused templates: nothing has checked their
// handlers.
func (c *readying) checkTemplates() {
	used := make(map[string]bool)
	eachHandler(c.Bundle, func(h *tree.Handler) {
		if h.Use != nil {
			used[h.Use.Template] = true
		}
	})
	for _, t := range c.Bundle.Templates {
		t.Contracts = make(map[string]*contracts.Contract)
		for i, k := range t.Parameters.Keys() {
			schema := t.Parameters.Elems[i]
			if !contracts.IsSchema(schema, k.Name, c.Reporter) {
				continue
			}
			contract := c.ready.Of(schema, fmt.Sprintf("parameter %s of template %s", k.Name, t.ID))
			t.Contracts[k.Name] = contract
			if preset := schema.Get("default"); preset != nil {
				if data, ok := preset.Literal(); ok {
					contract.Report(preset, data, preset.Span, c.Reporter)
				}
			}
		}
		if t.ID != "" && !used[t.ID] && !c.Partial {
			c.Warnf(t.PlaceOf("id", t.Span), rules.Template, "delete it, or use it: nothing of its handler is checked until then",
				"no handler uses template %q", t.ID)
		}
	}
}

// eachHandler visits all handlers of a bundle.
func eachHandler(b *tree.Bundle, visit func(*tree.Handler)) {
	for _, p := range b.Pipelines {
		for _, s := range p.Stages {
			for _, h := range s.Handlers {
				visit(h)
			}
		}
	}
	for _, h := range b.Detached {
		visit(h)
	}
}

// checkUse checks the arguments of a use against the schemas of the parameters.
func checkUse(w *merge.Whole, h *tree.Handler, r *diag.Reporter) {
	if h.Use == nil {
		return
	}
	t := w.Templates[h.Use.Template]
	if t == nil {
		return // already reported
	}
	for i, k := range h.Use.With.Keys() {
		if contract := t.Contracts[k.Name]; contract != nil {
			fits(w, h.Use.With.Elems[i], contract, contract.Name, r)
		}
	}
}
