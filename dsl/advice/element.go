package advice

import (
	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// adviseElementRules reports rules of on-error that leave out elements of a list without saying so. Earlier versions
// ended the whole list.
func (c *advisor) adviseElementRules() {
	for _, s := range c.Steps {
		if s.ForEach == nil || s.ForEach.OnFailure != "fail" {
			continue // with another on-failure, a failed element has never ended the list
		}
		for _, rule := range s.OnError {
			if !s.OfElement(rule) || !rule.GoesOn() || rule.AppliesTo != "" {
				continue
			}
			c.Report(diag.Diagnostic{
				Span: rule.PlaceOf("then", rule.Span), Severity: diag.Advice, Code: rules.ElementRule,
				Message: "this rule leaves out single elements: the others go on, and sources." + s.ID + ".response has null in their places",
				Hint: "write applies-to: element if you mean that. Write applies-to: list to end the list at the first such error, " +
					"as earlier versions did",
				Related: []diag.Related{{Span: s.PlaceOf("for-each", s.ForEach.Span), Message: "the list"}},
			})
		}
	}
}
