package handlers

import (
	"fmt"
	"net/http"
	"slices"

	"procaas/dsl/contracts"
	"procaas/dsl/expr"
	"procaas/dsl/tree"
)

// Operation returns the operation that a body calls. ok is false if the service is computed.
func (*Request) Operation(body *expr.Value) (contracts.Operation, bool) {
	service, ok := body.Get("service").Text()
	if !ok && body.Get("service") != nil {
		return contracts.Operation{}, false
	}
	o := contracts.Operation{
		Service: service, Method: methodOf(body), Path: body.Get("path"), Query: body.Get("query"), Body: body.Get("body"),
		NoBody: !slices.ContainsFunc(payloads, func(name string) bool { return body.Get(name) != nil }),
		Expect: expectedOf(body),
	}
	if data := eventData(body); data != nil {
		o.Body = data
	}
	reading, given := body.Get("response").Text()
	// auto reads JSON from a service that declares what it sends. A computed value of response
	// promises nothing.
	o.JSON = body.Get("response") == nil || given && (reading == "json" || reading == "auto")
	return o, true
}

// Takes returns the longest time of an attempt. The timeout of the handler is not included, because
// it replaces that of the service.
func (*Request) Takes(b *tree.Body) tree.Longest {
	if d, ok := b.Timeout(); ok {
		return tree.Longest{Time: d}
	}
	if id, ok := b.Field("service").Text(); ok {
		if s := b.Bundle.Service(id); s != nil {
			return tree.Longest{Time: s.Timeout}
		}
	}
	return tree.Longest{Time: defaultTimeout}
}

// methodOf returns the method of a request. It is empty if it is computed, or depends on whether a
// computed body is null.
func methodOf(body *expr.Value) string {
	if v := body.Get("method"); !v.IsNull() {
		method, _ := v.Text()
		return method
	}
	sends := false
	for _, name := range payloads {
		v := body.Get(name)
		// If it is null at run time, the method is GET.
		if v.Expr() != nil {
			return ""
		}
		sends = sends || !v.IsNull()
	}
	if sends {
		return http.MethodPost
	}
	return http.MethodGet
}

// expectedOf lists the expected statuses, or none if they are computed.
func expectedOf(body *expr.Value) []string {
	v := body.Get("expect")
	if v.IsNull() {
		return []string{"2xx"}
	}
	data, ok := v.Literal()
	list, isList := data.([]any)
	switch {
	case !ok:
		return nil
	case !isList:
		return []string{fmt.Sprint(data)}
	}
	var out []string
	for _, status := range list {
		out = append(out, fmt.Sprint(status))
	}
	return out
}
