package rules

import (
	"cmp"
	"slices"

	"procaas/dsl/diag"
)

// All lists all rules in the order of their codes.
func All() []Rule {
	rules := slices.Concat(yamlRules(), exprExamples(), bundleRules(), automatonRules(), degradationRules(), wayRules(), queueRules(),
		shardRules(), contractRules(), clusterRules(), adviceRules(), suppressRules(), testRules())
	slices.SortFunc(rules, func(a, b Rule) int { return cmp.Compare(a.Code, b.Code) })
	return rules
}

// Explain returns the rule of a code.
func Explain(code diag.Code) (Rule, bool) {
	for _, rule := range All() {
		if rule.Code == code {
			return rule, true
		}
	}
	return Rule{}, false
}
