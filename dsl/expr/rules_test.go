package expr

import (
	"slices"
	"testing"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// Every rule's first example must be found by just that rule, and its second
// one by none.
func TestExprRulesHoldForTheirExamples(t *testing.T) {
	t.Parallel()
	for _, rule := range rules.ExprRules() {
		sc := goldenScope()
		sc.Roots = slices.DeleteFunc(sc.Roots, func(root string) bool { return root == "item" })
		want := datum.AnyKind
		if rule.Code == rules.ExprUnfit {
			want = datum.BoolKind
		}
		var before, after diag.Reporter
		newExpr(rule.Before).Compile(sc, want, &before)
		newExpr(rule.After).Compile(sc, want, &after)
		if ds := before.Diagnostics(); len(ds) != 1 || ds[0].Code != rule.Code {
			t.Errorf("%s: %s: want one finding of this code, have %v", rule.Code, rule.Before, ds)
		}
		if ds := after.Diagnostics(); len(ds) != 0 {
			t.Errorf("%s: %s: want no finding, have %v", rule.Code, rule.After, ds)
		}
		if rule.Title == "" || rule.Why == "" {
			t.Errorf("%s is not explained", rule.Code)
		}
	}
}
