package contracts

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/syntax"
	"procaas/dsl/typing"
)

// A Call is the endpoint that a handler calls, as its document describes it.
type Call struct {
	Operation
	Endpoint *Endpoint
}

// Call finds the endpoint that a handler calls. It returns nil if that is unknown or not always the same. It reports
// each path that the service does not have.
func (api *API) Call(o Operation) *Call {
	var found []*Endpoint
	for _, path := range pathPatterns(o.Path) {
		op := api.find(o.Method, path)
		if op == nil {
			api.reportNoOperation(o, path)
			return nil
		}
		if !slices.Contains(found, op) {
			found = append(found, op)
		}
	}
	if len(found) != 1 {
		return nil
	}
	api.finish(found[0])
	return &Call{o, found[0]}
}

// reportNoOperation reports that a service has no such operation. It suggests another method of the path, the nearest
// path, or to write out computed names.
func (api *API) reportNoOperation(o Operation, path string) {
	d := diag.Diagnostic{Span: o.Path.Span, Code: rules.NoOperation, Runs: true}
	shown := strings.ReplaceAll(path, syntax.Hole, "{…}")
	methods, choices := api.methodsOf(path), api.choices(o.Method, path)
	d.Message = fmt.Sprintf("service %q has no %s %s", o.Service, o.Method, shown)
	switch {
	case len(methods) > 0:
		d.Message += ", only " + strings.Join(methods, ", ")
		d.Hint = "write method: " + methods[0]
	case len(choices) > 0:
		d.Message += ": a computed part stands for a parameter only, and the document has " + strings.Join(choices, ", ")
		d.Hint = "write the possible names into the expression, such as 'a' if … else 'b': they are compared with the document"
	default:
		d.Hint = api.contracts.DidYouMean(shown, func() []string { return api.templates(o.Method) })
	}
	d.Related = []diag.Related{{Span: api.root.Get("paths").Head(), Message: "its paths, by " + api.document}}
	api.contracts.Report(d)
}

// IsSuccess reports whether a status, or a class such as 2xx, is a success.
func IsSuccess(status string) bool { return strings.HasPrefix(status, "2") }

// Outline returns the type of a response with one of the expected statuses that the document describes, or nil if it is
// unknown. others are expected statuses outside of 2xx without a description.
func (c *Call) Outline() (o *typing.Outline, others []string) {
	var described []string
	for _, status := range c.Expect {
		_, _, all := c.Endpoint.reply(status)
		_, _, some := c.Endpoint.reply(c.Endpoint.statuses(status)[0])
		if some || IsSuccess(status) {
			described = append(described, status)
		}
		if !all && !IsSuccess(status) {
			others = append(others, status)
		}
	}
	return c.Endpoint.outline(described), others
}

// Check checks a response against the schema for its status. The error is a [*Error], or that of ctx.
func (c *Call) Check(ctx context.Context, status int, data any) error {
	contract, bare, said := c.Endpoint.reply(strconv.Itoa(status))
	fault := func(format string, args ...any) error {
		return &Error{c.Endpoint.String(), []Fault{{Message: fmt.Sprintf(format, args...)}}}
	}
	switch {
	case !said && !IsSuccess(strconv.Itoa(status)):
		return nil // the handler expects it, and nothing describes it
	case !said:
		return fault("the document of %s says nothing of a reply %d", c.Service, status)
	case bare && data != nil:
		return fault("want no content in a reply %d, have %s", status, datum.DescribeData(data))
	}
	return contract.CheckContext(ctx, data)
}
