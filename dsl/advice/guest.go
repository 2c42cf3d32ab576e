package advice

import (
	"cmp"
	"fmt"
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/steps"
	"procaas/dsl/tree"
)

// adviseGuests finds names of contributions that become null when a service leaves something out of
// its response. Nothing guards a critical handler of another owner against that: the contribution
// has succeeded.
func (c *advisor) adviseGuests() {
	for i, s := range c.Steps {
		if s.Into == "" {
			continue
		}
		for _, a := range c.Assignments(i) {
			if a.Key.Name != s.ID {
				continue
			}
			for k, name := range a.Value.Keys() {
				c.adviseGuest(s, name.Name, a.Value.Elems[k])
			}
		}
	}
}

// adviseGuest looks at one name of a contribution.
func (c *advisor) adviseGuest(s steps.Step, name string, value *expr.Value) {
	first, ok := s.SharedState.Get(name).Literal()
	if !ok || first == nil || !unsure(value) {
		return
	}
	reader := c.hostReading(s.Handler, datum.Path{expr.StateRoot, s.ID, name})
	if reader == nil {
		return
	}
	c.Report(diag.Diagnostic{
		Span: value.Span, Severity: diag.Advice, Code: rules.UnsureGuest,
		Message: fmt.Sprintf("shared-state.%s.%s becomes null when the response lacks it, and the critical %q of another owner reads it",
			s.ID, name, reader.ID),
		Hint:    "say what the response has in response-schema, or what stands in for it, such as ?? " + datum.Plainly(first),
		Related: []diag.Related{{Span: reader.IDPlace(), Message: "reads it"}},
	})
}

// unsure reports whether a value is a part of a response that may be missing there.
func unsure(value *expr.Value) bool {
	e := value.Expr()
	return e != nil && e.Result.Types()&datum.NullShape != 0 && slices.ContainsFunc(e.Reads(), func(r datum.Read) bool {
		return !r.Guarded && steps.SourceOf(r.Path) != "" && len(r.Path) > 2 && r.Path[2] == "response"
	})
}

// hostReading finds a critical handler of another owner that reads a name and is not prepared for null.
func (c *advisor) hostReading(guest *tree.Handler, path datum.Path) *tree.Handler {
	for j, s := range c.Steps {
		if s.IsCritical() && c.ownerOf(s.Handler) != c.ownerOf(guest) && slices.ContainsFunc(c.read[j], func(r datum.Read) bool {
			return !r.Guarded && len(r.Path) >= len(path) && r.Path.Overlaps(path)
		}) {
			return s.Handler
		}
	}
	return nil
}

// ownerOf returns who looks after a handler.
func (c *advisor) ownerOf(h *tree.Handler) string { return cmp.Or(h.Owner, c.Declared.Owner) }
