package dsl

import "slices"

// itemScope is what the calls of a handler may read besides, when they are made for
// each item.
func (h *Handler) itemScope(sc *scope) *scope {
	if h.ForEach == nil {
		return sc
	}
	in := *sc
	in.roots = append(slices.Clone(sc.roots), "item", indexRoot)
	return &in
}

// checkForEach reports a for-each that makes no sense.
func (c *checker) checkForEach(h *Handler, r *Reporter) {
	f := h.ForEach
	if f == nil {
		return
	}
	at := h.places.of("for-each", f.Span)
	switch {
	case h.Type == "" && !c.blamed(h.Span):
		r.Errorf(at, codeForEach, "add the call, such as request: {…}", "handler %q calls nobody, so there is nothing to repeat", h.ID)
	case c.types[h.Type].SetsState:
		r.Errorf(at, codeForEach, "compute the whole with map(), sum() or another function of lists",
			"handler %q makes no call that could be repeated: %s only sets the shared state", h.ID, h.Type)
	}
	if f.MaxParallel > 1 && len(h.Touches) > 0 {
		r.Report(Diagnostic{
			Span: f.places.of("max-parallel", f.Span), Severity: Warning, Code: codeForEach,
			Message: "the elements are worked on one after the other, since the handler touches " + h.Touches[0],
			Hint:    "drop touches: when calls for different elements are independent, or drop this",
			Related: []Related{{Span: h.places.of("touches", h.Span), Message: "what it touches"}},
		})
	}
}
