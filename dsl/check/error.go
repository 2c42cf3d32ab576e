package check

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// compileOnError compiles the rules of on-error of a handler or of its compensation. They may read the error and
// everything in the scope: for a handler all that it may read, except its own outcome.
func compileOnError(h *tree.Handler, list []*tree.OnError, sc *expr.Scope, r *diag.Reporter) {
	if len(list) == 0 {
		return
	}
	in := *sc // the name exists only in these rules
	in.Roots = append(slices.Clone(sc.Roots), expr.ErrorRoot)
	for _, rule := range list {
		of := &in
		if h.OfElement(rule) {
			of = itemScope(h, of)
		}
		spec.Compile(rule.When, &spec.Field{ExprKind: datum.BoolKind}, of, r)
		spec.Compile(rule.Result, nil, of, r)
		spec.Compile(rule.Message, &spec.Field{ExprKind: datum.StringKind}, of, r)
	}
}

// checkOnError reports rules without effect, alone or because of earlier ones.
func checkOnError(w *merge.Whole, h *tree.Handler, r *diag.Reporter) {
	if len(h.OnError) == 0 {
		return
	}
	if h.IsPlaceholder() && !w.Blamed(h.Span) || w.Types.SetsState(h) {
		r.Errorf(h.PlaceOf("on-error", h.OnError[0].Span), rules.OnError, "delete it",
			"handler %q makes no call, so no call of it fails", h.ID)
	}
	for i, rule := range h.OnError {
		checkRuleFields(rule, h, r)
		checkAppliesTo(rule, h, r)
		before := slices.DeleteFunc(slices.Clone(h.OnError[:i]), func(b *tree.OnError) bool { return h.OfElement(b) != h.OfElement(rule) })
		checkRuleReached(rule, before, r)
	}
}

// checkUndoRules reports rules of a compensation without effect. It sets no state, and nothing goes on without it.
func checkUndoRules(h *tree.Handler, list []*tree.OnError, r *diag.Reporter) {
	for i, o := range list {
		switch {
		case o.Result != nil:
			r.Errorf(o.PlaceOf("result", o.Span), rules.OnError, "delete it",
				"a rule of the compensation of handler %q has a result, but nothing reads the shared state after a compensation", h.ID)
		case o.AppliesTo != "":
			r.Errorf(o.PlaceOf("applies-to", o.Span), rules.OnError, "delete it", "the compensation of handler %q has no for-each", h.ID)
		case o.Then == "skip":
			r.Errorf(o.PlaceOf("then", o.Span), rules.OnError, "write then: continue, which counts it as undone",
				"the compensation of handler %q cannot be skipped after an error: either it counts as undone, or it fails", h.ID)
		default:
			checkRuleFields(o, h, r)
		}
		checkRuleReached(o, list[:i], r)
	}
}

// checkAppliesTo reports a rule that does not say that it is about the whole list, or that says so in vain.
func checkAppliesTo(o *tree.OnError, h *tree.Handler, r *diag.Reporter) {
	at := o.PlaceOf("applies-to", o.Span)
	switch {
	case h.ForEach == nil && o.AppliesTo != "":
		r.Errorf(at, rules.OnError, "delete it", "handler %q has no for-each, so its rules of on-error are about the handler", h.ID)
	case h.ForEach == nil:
	case o.Result != nil && o.AppliesTo == "element":
		r.Errorf(o.PlaceOf("result", o.Span), rules.OnError, "write applies-to: list, or drop the result and compute it from sources."+h.ID+".response",
			"a rule of handler %q is about one element, but its result sets names of the run", h.ID)
	case o.Result != nil && o.AppliesTo == "" && o.Then == "continue":
		r.Warnf(o.PlaceOf("then", o.Span), rules.OnError, "write applies-to: list behind it",
			"a rule of handler %q sets names of the run, so it ends the list at the first error that it matches, and must say so", h.ID)
	case !h.OfElement(o) && h.ForEach.OnFailure != "fail":
		r.Warnf(o.PlaceOf("then", o.Span), rules.NeverMatches, "drop it, or drop on-failure",
			"this rule is never reached: with on-failure: %s, no element fails the handler", h.ForEach.OnFailure)
	}
}

// checkRuleFields reports fields that do not fit the action of a rule.
func checkRuleFields(o *tree.OnError, h *tree.Handler, r *diag.Reporter) {
	if o.Result != nil && o.Then != "continue" && o.Then != "" {
		hint := "write then: continue, or drop it"
		if o.Then == "skip" {
			hint = "write then: continue, or move it to fallback.result, which counts while the handler is off"
		}
		r.Errorf(o.PlaceOf("result", o.Span), rules.OnError, hint, "a rule of handler %q has a result, but then: %s sets none", h.ID, o.Then)
	}
	if o.Message != nil && o.Then != "fail" && o.Then != "" {
		r.Errorf(o.PlaceOf("message", o.Span), rules.OnError, "write then: fail, or drop it",
			"a rule of handler %q has a message, but then: %s shows none", h.ID, o.Then)
	}
}

// checkRuleReached warns of a rule, or of one of its classes, that can never match first, because earlier rules
// match all such errors. A rule with a condition matches only some.
func checkRuleReached(o *tree.OnError, before []*tree.OnError, r *diag.Reporter) {
	for _, b := range before {
		if b.CatchesAll() {
			r.Report(diag.Diagnostic{
				Span: o.PlaceOf("on", o.Span), Severity: diag.Warning, Code: rules.NeverMatches,
				Message: "this rule is never reached", Hint: "move it up, or add on: with classes to the rule before it",
				Related: []diag.Related{{Span: b.PlaceOf("then", b.Span), Message: "this rule takes every error"}},
			})
			return
		}
	}
	for i, class := range o.On {
		at := slices.IndexFunc(before, func(b *tree.OnError) bool {
			return b.When == nil && slices.ContainsFunc([]string(b.On), func(other string) bool { return covers(other, class) })
		})
		if at >= 0 {
			b := before[at]
			r.Report(diag.Diagnostic{
				Span: o.PlaceOf(fmt.Sprintf("on[%d]", i), o.PlaceOf("on", o.Span)), Severity: diag.Warning, Code: rules.NeverMatches,
				Message: fmt.Sprintf("class %s never comes here", class), Hint: "drop it, or move the rule up",
				Related: []diag.Related{{Span: b.PlaceOf("on", b.Span), Message: "this rule takes it"}},
			})
		}
	}
}

// covers reports whether a class of errors includes another one. any includes all, and 5xx includes 503 and
// itself.
func covers(class, other string) bool {
	return class == other || class == "any" || len(other) == 3 && strings.HasSuffix(class, "xx") && class[:1] == other[:1]
}
