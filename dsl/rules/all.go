package rules

import (
	"cmp"
	"slices"
)

// All lists the rules of the core and those of add-ons, in the order of their codes.
func All(more ...Rule) []Rule {
	rules := slices.Concat(yamlRules(), exprExamples(), bundleRules(), automatonRules(), degradationRules(), wayRules(), contractRules(),
		adviceRules(), suppressRules(), testRules(), more)
	slices.SortFunc(rules, func(a, b Rule) int { return cmp.Compare(a.Code, b.Code) })
	return rules
}
