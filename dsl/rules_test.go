package dsl_test

import (
	"slices"
	"strings"
	"testing"

	"procaas/dsl"
)

// TestRulesKeepTheirWord loads the examples of every rule: the one that breaks
// it gets that code and no other, the mended one gets nothing at all.
func TestRulesKeepTheirWord(t *testing.T) {
	t.Parallel()
	for _, rule := range dsl.Rules() {
		t.Run(string(rule.Code), func(t *testing.T) {
			t.Parallel()
			_, before := load(t, rule.Before)
			if !slices.ContainsFunc(before, func(d dsl.Diagnostic) bool { return d.Code == rule.Code }) {
				t.Errorf("before: the code is not found in\n%s\nhave %v", rule.Before, show(before))
			}
			others := slices.DeleteFunc(slices.Clone(before), func(d dsl.Diagnostic) bool { return d.Code == rule.Code })
			if len(others) > 0 {
				t.Errorf("before: want only %s, have also %v in\n%s", rule.Code, show(others), rule.Before)
			}
			if _, after := load(t, rule.After); len(after) > 0 {
				t.Errorf("after: want nothing, have %v in\n%s", show(after), rule.After)
			}
		})
	}
}

// show writes findings in short.
func show(ds []dsl.Diagnostic) string {
	var b strings.Builder
	for _, d := range ds {
		b.WriteString("\n  " + d.String() + " " + string(d.Code) + " " + d.Message)
	}
	return b.String()
}
