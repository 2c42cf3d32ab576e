package contracts

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/typing"
)

// A Call is what a handler calls, and what the document says of that.
type Call struct {
	Operation
	Endpoint *Endpoint
}

// Call finds the endpoint that a handler calls; nil when it is not known which, or when there is
// none, which is reported.
func (api *API) Call(o Operation) *Call {
	path, ok := pathPattern(o.Path)
	if !ok {
		return nil
	}
	op, known := api.find(o.Method, path)
	if op == nil {
		if known {
			api.reportNoOperation(o, path)
		}
		return nil
	}
	api.finish(op)
	return &Call{o, op}
}

// reportNoOperation says that a service has no such call: another method when the path is
// there, or else the nearest path.
func (api *API) reportNoOperation(o Operation, path string) {
	d := diag.Diagnostic{Span: o.Path.Span, Code: rules.NoOperation}
	if methods := api.methodsOf(path); len(methods) > 0 {
		d.Message = fmt.Sprintf("service %q has no %s %s, only %s", o.Service, o.Method, path, strings.Join(methods, ", "))
		d.Hint = "write method: " + methods[0]
	} else {
		d.Message = fmt.Sprintf("service %q has no %s %s", o.Service, o.Method, path)
		d.Hint = api.contracts.DidYouMean(path, func() []string { return api.templates(o.Method) })
	}
	d.Related = []diag.Related{{Span: api.root.Get("paths").Head(), Message: "its paths, by " + api.document}}
	api.contracts.Report(d)
}

// Outline is what a response with one of the expected statuses may be; nil when that is not
// known.
func (c *Call) Outline() *typing.Outline { return c.Endpoint.outline(c.Expect) }

// Check holds a response against what the document says of its status. The error is a
// [*Error], or that of ctx.
func (c *Call) Check(ctx context.Context, status int, data any) error {
	contract, bare, said := c.Endpoint.reply(strconv.Itoa(status))
	fault := func(format string, args ...any) error {
		return &Error{c.Endpoint.String(), []Fault{{Message: fmt.Sprintf(format, args...)}}}
	}
	switch {
	case !said:
		return fault("the document of %s says nothing of a reply %d", c.Service, status)
	case bare && data != nil:
		return fault("want no content in a reply %d, have %s", status, datum.DescribeData(data))
	}
	return contract.CheckContext(ctx, data)
}
