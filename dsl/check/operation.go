package check

import (
	"fmt"
	"slices"

	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// checkOperation finds the operation that a handler calls. It reports an error if the service does not have it.
func checkOperation(w *merge.Whole, h *tree.Handler, apis map[string]*contracts.API) {
	t, ok := w.Types[h.Type]
	if !ok || t.Operation == nil || h.Body == nil {
		return
	}
	o, ok := t.Operation(h.Body)
	if !ok {
		return
	}
	if h.ResponseSchema != nil && slices.ContainsFunc(o.Expect, contracts.IsSuccess) {
		h.Undescribed = slices.DeleteFunc(slices.Clone(o.Expect), contracts.IsSuccess)
	}
	api := apis[o.Service]
	if api == nil || o.Method == "" {
		return
	}
	h.Calls = api.Call(o)
	if h.Calls == nil {
		return
	}
	if h.ResponseSchema == nil && o.JSON && len(o.Expect) > 0 && w.Bundle.Index.Services[o.Service].CheckResponses {
		h.Expected, h.Undescribed = h.Calls.Outline()
	}
}

// checkCall checks what a handler sends against the operation that it calls. Its expressions are compiled.
func checkCall(w *merge.Whole, h *tree.Handler, r *diag.Reporter) {
	call := h.Calls
	if call == nil {
		return
	}
	before := len(r.Found)
	defer func() {
		for i := range r.Found[before:] {
			r.Found[before+i].Runs = true // the service has the last word
		}
	}()
	checkQuery(h, call, r)
	switch to := call.Endpoint; {
	case call.Body != nil && to.Body != nil:
		fits(w, call.Body, to.Body, to.Body.Name, r)
	case call.NoBody && to.BodyMust:
		r.Errorf(h.PlaceOf("type", h.Span), rules.MissingPart, "add body:", "%s needs a body", to)
	case call.Body != nil && !to.BodyKnown:
		r.Warnf(call.Body.Head(), rules.MissingPart, "drop it, or complete the document", "%s takes no body", to)
	}
}

// checkQuery checks the query that a handler sends against the parameters of the operation. A query that is one
// expression is unknown before it runs.
func checkQuery(h *tree.Handler, call *contracts.Call, r *diag.Reporter) {
	given := call.Query
	if given.Expr() != nil {
		return
	}
	parameters := call.Endpoint.Query
	for i, k := range given.Keys() {
		at := slices.IndexFunc(parameters, func(p contracts.Parameter) bool { return p.Name == k.Name })
		if at < 0 {
			known := func() []string {
				var names []string
				for _, p := range parameters {
					names = append(names, p.Name)
				}
				return names
			}
			r.Errorf(k.Span, rules.Parameter, r.DidYouMean(k.Name, known), "%s has no parameter %q", call.Endpoint, k.Name)
			continue
		}
		checkParameter(parameters[at], given.Elems[i], r)
	}
	for _, p := range parameters {
		if given.Get(p.Name) == nil && p.Required {
			at := h.PlaceOf("type", h.Span)
			if given != nil {
				at = given.Head()
			}
			r.Report(diag.Diagnostic{
				Span: at, Code: rules.MissingPart, Hint: "add it below query",
				Message: fmt.Sprintf("%s needs the parameter %q", call.Endpoint, p.Name),
				Related: []diag.Related{{Span: p.At, Message: "it is required here"}},
			})
		}
	}
}

// checkParameter checks the value of one parameter. It is sent as text, so a number equals its text. An
// optional one may be null.
func checkParameter(p contracts.Parameter, v *expr.Value, r *diag.Reporter) {
	want := p.Outline
	if want != nil && want.Shape&(datum.NumberShape|datum.BoolShape|datum.StringShape) != 0 {
		loose := *want
		loose.Shape |= datum.NumberShape | datum.BoolShape | datum.StringShape
		loose.Words = nil
		if want.Words != nil {
			for _, w := range want.Words {
				loose.Words = append(loose.Words, w)
				if _, isText := w.(string); !isText {
					loose.Words = append(loose.Words, datum.DescribeData(w))
				}
			}
		}
		want = &loose
	}
	if !p.Required {
		want = want.Absent("")
	} else if want == nil {
		want = &typing.Outline{Shape: datum.AnyShape &^ datum.NullShape}
	}
	fitsOutline(v, want, portion{what: "query " + p.Name}, r)
}
