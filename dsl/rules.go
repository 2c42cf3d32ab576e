package dsl

import (
	"cmp"
	"slices"
)

// A Rule documents a diagnostic code.
type Rule struct {
	Code   Code
	Title  string // a few words
	Why    string // what goes wrong without the rule
	Before string // an example that breaks it
	After  string // the example, mended
}

// Rules lists all rules in the order of their codes.
func Rules() []Rule {
	rules := slices.Concat(bundleRules(), automatonRules(), degradationRules())
	slices.SortFunc(rules, func(a, b Rule) int { return cmp.Compare(a.Code, b.Code) })
	return rules
}

// Explain finds the rule of a code.
func Explain(code Code) (Rule, bool) {
	for _, rule := range Rules() {
		if rule.Code == code {
			return rule, true
		}
	}
	return Rule{}, false
}
