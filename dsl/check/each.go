package check

import (
	"fmt"
	"maps"
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// itemScope returns the scope of calls that are made for each item. It adds the item and its index. Without
// for-each it returns sc.
func itemScope(h *tree.Handler, sc *expr.Scope) *expr.Scope {
	if h.ForEach == nil {
		return sc
	}
	in := *sc
	in.Roots = append(slices.Clone(sc.Roots), "item", expr.IndexRoot)
	if o := h.ForEach.Items.Outline(); o != nil {
		in.Item = o.Elem
	}
	if _, list := in.Responses[h.ID]; list {
		in.Responses = maps.Clone(sc.Responses)
		delete(in.Responses, h.ID) // a verification has its own response
	}
	return &in
}

// responsesOf returns the type of the response of a for-each whose calls return o: a list with one element per
// item, in the order of the items. on-failure and on-error decide what replaces the response of a failed call.
func responsesOf(h *tree.Handler, o *typing.Outline) *typing.Outline {
	if o == nil && h.ForEach.OnFailure != "collect" {
		o = (&typing.Outline{Shape: datum.AnyShape &^ datum.SecretShape &^ datum.NullShape}).Supposed()
	}
	if o != nil && len(h.Undescribed) > 0 {
		o = &typing.Outline{Shape: datum.AnyShape &^ datum.SecretShape &^ datum.NullShape, Inferred: true, Undescribed: h.Undescribed}
	}
	const allows = "calls of items may fail, which %s allows"
	switch f := h.ForEach; {
	case f.OnFailure == "continue":
		o = o.Absent(fmt.Sprintf(allows, "on-failure: continue"))
	case f.OnFailure == "fail" && h.LeavesOut() != nil:
		o = o.Absent(fmt.Sprintf(allows, "a rule of on-error"))
	case f.OnFailure == "collect":
		why := fmt.Sprintf(allows, "on-failure: collect")
		text := func(s datum.Shape) *typing.Member {
			return &typing.Member{Outline: &typing.Outline{Shape: s}, Required: true}
		}
		failure := &typing.Outline{
			Shape: datum.MapShape | datum.NullShape, Closed: true, Why: "the calls of most items succeed",
			Members: map[string]*typing.Member{
				"class": text(datum.StringShape), "message": text(datum.StringShape), "status": text(datum.IntShape | datum.NullShape),
			},
		}
		if may := o.Absent(why); may != o {
			failing := *may
			failing.Unless = "error"
			o = &failing
		}
		o = &typing.Outline{Shape: datum.MapShape, Closed: true, Members: map[string]*typing.Member{
			"response": {Outline: o, Required: true}, "status": text(datum.IntShape | datum.NullShape),
			"error": {Outline: failure, Required: true},
		}}
	}
	if o != nil && o.Undescribed != nil {
		o = o.Absent("") // such a reply may have no body
	}
	return &typing.Outline{Shape: datum.ListShape, Elem: o}
}

// checkForEach reports errors in a for-each.
func checkForEach(w *merge.Whole, h *tree.Handler, r *diag.Reporter) {
	f := h.ForEach
	if f == nil {
		return
	}
	at := h.PlaceOf("for-each", f.Span)
	switch {
	case h.IsPlaceholder() && !w.Blamed(h.Span):
		r.Errorf(at, rules.ForEach, "add the call, such as request: {…}", "handler %q makes no call, so there is nothing to repeat", h.ID)
	case w.Types.SetsState(h):
		r.Errorf(at, rules.ForEach, "compute the whole with map(), sum() or another function of lists",
			"handler %q makes no call that could be repeated: %s only sets the shared state", h.ID, h.Type)
	}
	if f.MaxParallel > 1 && len(h.Touches) > 0 {
		r.Report(diag.Diagnostic{
			Span: f.PlaceOf("max-parallel", f.Span), Severity: diag.Warning, Code: rules.ForEach,
			Message: "the elements are worked on one after the other, since the handler touches " + h.Touches[0],
			Hint:    "drop touches: when calls for different elements are independent, or drop this",
			Related: []diag.Related{{Span: h.PlaceOf("touches", h.Span), Message: "what it touches"}},
		})
	}
}

// compileItems compiles the list of a for-each, and warns if it may be null.
func compileItems(f *tree.ForEach, sc *expr.Scope, r *diag.Reporter) {
	spec.Compile(f.Items, &spec.Field{ExprKind: datum.ListKind}, sc, r)
	if f.Items == nil || f.Items.Expr() == nil {
		return
	}
	// The proof of degradation reports a null without a reason.
	if o := f.Items.Outline(); o.Nullable() && o.Why != "" {
		r.Warnf(f.Items.Span, rules.ExprMaybeNull, "write, for example, "+f.Items.Expr().WithDefault(f.Items.Span, datum.ListShape),
			"the list of for-each may be null, which fails it: %s", o.Why)
	}
}
