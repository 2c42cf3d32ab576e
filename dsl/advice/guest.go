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

// adviseGuests reports names that have an initial value and become null if a service omits a member of its
// response. Then the handler that sets the name has still succeeded. So a critical handler of another owner, or
// a critical call that sends the name, gets null without warning.
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
	for _, s := range c.SentOn() {
		first := any(c.State)
		for _, name := range s.Name {
			of, _ := first.(map[string]any)
			first = of[name]
		}
		if len(s.Name) == 0 || first == nil || c.ownerOf(s.From) != c.ownerOf(s.By) {
			continue
		}
		if len(s.Name) > 1 {
			first = nil // ?? would replace the whole value
		}
		c.adviseUnsure(s.At,
			fmt.Sprintf("shared-state.%s becomes null when the response lacks it, and the critical %q sends it", s.Name, s.By.ID),
			first, diag.Related{Span: s.By.IDPlace(), Message: "sends it"})
	}
}

// adviseUnsure reports a value that begins as first and may become null.
func (c *advisor) adviseUnsure(at diag.Span, message string, first any, reader diag.Related) {
	hint := "say what the response has in response-schema"
	if text, err := datum.FormatJSON(first); err == nil && first != nil { // which expressions read, too
		hint += ", or what stands in for it, such as ?? " + string(text)
	}
	c.Report(diag.Diagnostic{
		Span: at, Severity: diag.Advice, Code: rules.UnsureGuest, Message: message, Related: []diag.Related{reader}, Hint: hint,
	})
}

// adviseGuest checks one name that a contribution sets.
func (c *advisor) adviseGuest(s steps.Step, name string, value *expr.Value) {
	first, ok := s.SharedState.Get(name).Literal()
	if !ok || first == nil || !unsure(value) {
		return
	}
	reader := c.hostReading(s.Handler, datum.Path{expr.StateRoot, s.ID, name})
	if reader == nil {
		return
	}
	c.adviseUnsure(value.Span, fmt.Sprintf("shared-state.%s.%s becomes null when the response lacks it, and the critical %q of another owner reads it",
		s.ID, name, reader.ID), first, diag.Related{Span: reader.IDPlace(), Message: "reads it"})
}

// unsure reports whether a value is part of a response and may be missing there.
func unsure(value *expr.Value) bool {
	e := value.Expr()
	return e != nil && e.Result.Types()&datum.NullShape != 0 && slices.ContainsFunc(e.Reads(), func(r datum.Read) bool {
		return !r.Guarded && steps.SourceOf(r.Path) != "" && len(r.Path) > 2 && r.Path[2] == "response"
	})
}

// hostReading returns a critical handler of another owner that reads a name and does not handle null.
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

// ownerOf returns the owner of a handler.
func (c *advisor) ownerOf(h *tree.Handler) string { return cmp.Or(h.Owner, c.Declared.Owner) }
