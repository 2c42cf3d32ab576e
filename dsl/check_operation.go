package dsl

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/typing"
)

// A call is the operation of a service that a handler calls.
type call struct {
	Operation
	*operation          // what the document says of it; never nil
	api        *openAPI // the document
}

// checkOperation finds the operation that a handler calls, and reports when the
// service has none such.
func (c *checker) checkOperation(h *Handler) {
	t, ok := c.types[h.Type]
	if !ok || t.Operation == nil || h.Body == nil {
		return
	}
	o, ok := t.Operation(h.Body)
	service := c.bundle.services[o.Service]
	if !ok || service == nil || service.api == nil || o.Method == "" {
		return
	}
	path, ok := pathPattern(o.Path)
	if !ok {
		return
	}
	api := service.api
	op, known := api.find(o.Method, path)
	if op == nil {
		if known {
			c.reportNoOperation(api, o, path)
		}
		return
	}
	api.finish(op)
	h.calls = &call{o, op, api}
	if h.ResponseSchema == nil && o.JSON && len(o.Expect) > 0 && service.CheckResponses {
		h.expected = op.outline(o.Expect)
	}
}

// reportNoOperation says that a service has no such call: another method when the path is
// there, or else the nearest path.
func (c *checker) reportNoOperation(api *openAPI, o Operation, path string) {
	d := diag.Diagnostic{Span: o.Path.Span, Code: rules.NoOperation}
	if methods := api.methodsOf(path); len(methods) > 0 {
		d.Message = fmt.Sprintf("service %q has no %s %s, only %s", o.Service, o.Method, path, strings.Join(methods, ", "))
		d.Hint = "say method: " + methods[0]
	} else {
		d.Message = fmt.Sprintf("service %q has no %s %s", o.Service, o.Method, path)
		d.Hint = c.DidYouMean(path, func() []string { return api.templates(o.Method) })
	}
	d.Related = []diag.Related{{Span: head(api.root.Get("paths")), Message: "its paths, by " + api.service.OpenAPI}}
	c.Report(d)
}

// checkCall holds what a handler sends against the operation that it calls. Its
// expressions are compiled.
func (c *pipelineCheck) checkCall(h *Handler) {
	call := h.calls
	if call == nil {
		return
	}
	c.checkQuery(h, call)
	where := call.method + " " + call.template
	switch {
	case call.Operation.Body != nil && call.operation.body != nil:
		c.fits(call.Operation.Body, call.operation.body, call.operation.body.Name)
	case call.NoBody && call.bodyMust:
		c.Errorf(h.PlaceOf("type", h.Span), rules.MissingPart, "add body:", "%s needs a body", where)
	case call.Operation.Body != nil && !call.bodyKnown:
		c.Warnf(head(call.Operation.Body), rules.MissingPart, "drop it, or complete the document", "%s takes no body", where)
	}
}

// checkQuery holds the query that a handler sends against the parameters of the operation. One
// that is computed as a whole is not known before it runs.
func (c *pipelineCheck) checkQuery(h *Handler, call *call) {
	given := call.Query
	if given.Expr() != nil {
		return
	}
	find := func(name string) int {
		return slices.IndexFunc(call.query, func(p parameter) bool { return p.name == name })
	}
	for i, k := range given.Keys() {
		at := find(k.Name)
		if at < 0 {
			known := func() []string {
				var names []string
				for _, p := range call.query {
					names = append(names, p.name)
				}
				return names
			}
			c.Errorf(k.Span, rules.Parameter, c.DidYouMean(k.Name, known), "%s %s has no parameter %q", call.method, call.template, k.Name)
			continue
		}
		c.checkParameter(call.query[at], given.Elems[i])
	}
	for _, p := range call.query {
		if _, ok := hasKey(given.Keys(), p.name); !ok && p.required {
			at := h.PlaceOf("type", h.Span)
			if given != nil {
				at = head(given)
			}
			c.Report(diag.Diagnostic{
				Span: at, Code: rules.MissingPart, Hint: "add it below query",
				Message: fmt.Sprintf("%s %s needs the parameter %q", call.method, call.template, p.name),
				Related: []diag.Related{{Span: p.at, Message: "it is required here"}},
			})
		}
	}
}

// checkParameter looks at the value of one parameter. It is sent as text, so
// that a number and its text are the same; one that is not required may be null.
func (c *pipelineCheck) checkParameter(p parameter, v *expr.Value) {
	want := p.outline
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
	if !p.required {
		want = want.Absent("")
	} else if want == nil {
		want = &typing.Outline{Shape: datum.AnyShape &^ datum.NullShape}
	}
	c.fitsOutline(v, want, portion{what: "query " + p.name})
}

// CheckResponse holds the response of the handler against its schema, or against
// what the service's OpenAPI document says of the status; 0 is for a handler
// whose responses have none. The error is a [*ContractError], or that of ctx.
func (h *Handler) CheckResponse(ctx context.Context, status int, data any) error {
	if h.response != nil {
		return h.response.CheckContext(ctx, data)
	}
	if h.expected == nil || status < 100 {
		return nil
	}
	c, bare, said := h.calls.reply(strconv.Itoa(status))
	where := h.calls.method + " " + h.calls.template
	switch {
	case !said:
		return &ContractError{where, []Fault{{Message: fmt.Sprintf("the document of %s says nothing of a reply %d", h.calls.Service, status)}}}
	case bare && data != nil:
		return &ContractError{where, []Fault{{Message: fmt.Sprintf("want no content in a reply %d, have %s", status, datum.DescribeData(data))}}}
	}
	return c.CheckContext(ctx, data)
}
