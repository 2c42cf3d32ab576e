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

// A Call is the endpoint that a handler calls, as its document describes it.
type Call struct {
	Operation
	Endpoint *Endpoint
}

// Call finds the endpoint that a handler calls. It returns nil if that is unknown, and also if there is none,
// which it reports.
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

// reportNoOperation reports that a service has no such operation. It suggests another method of the path, or
// the nearest path.
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

// Outline returns the type of a response with one of the expected statuses, or nil if it is unknown.
func (c *Call) Outline() *typing.Outline { return c.Endpoint.outline(c.Expect) }

// Check checks a response against the schema for its status. The error is a [*Error], or that of ctx.
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
