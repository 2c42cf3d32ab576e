package handlers

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/dsl/urls"
	"procaas/engine/outbound"
)

// CheckBody checks what the tags of [Request] cannot express.
func (*Request) CheckBody(b *tree.Body) {
	checkOneOf(b, "url", "service")
	checkAddress(b)
	checkPayload(b)
	checkParts(b)
	checkCloudEvent(b)
	checkSecrets(b)
	checkCredentials(b)
	for _, k := range b.Field("headers").Keys() {
		if err := checkHeaderName(k.Name); err != nil {
			b.Errorf(k.Span, rules.Body, "", "%v", err)
		}
	}
}

// checkAddress checks the address of a request, as far as it is literal.
func checkAddress(b *tree.Body) {
	// [Request.target] checks computed values at run time.
	if path, service := b.Field("path"), b.Field("service"); path != nil {
		checkServicePath(b, path)
		if service == nil && !mistyped(b, "service") {
			b.Errorf(path.Span, rules.Body, "name the service, or put the path into url", "path needs a service")
		}
	} else if service != nil && !mistyped(b, "path") {
		b.Errorf(service.Span, rules.Body, "add path: /…", "service needs a path")
	}
	if id, ok := b.Field("service").Text(); ok && b.Bundle.Service(id) == nil {
		unknownService(b, id)
	}
	if text, ok := b.Field("url").Text(); ok {
		checkURL(b, text)
	}
}

// checkServicePath finds a query in the path. It would be escaped, and the service would get an
// unknown path.
func checkServicePath(b *tree.Body, path *expr.Value) {
	text, ok := path.Text()
	if !ok {
		return
	}
	if err := checkPath(text); err != nil {
		b.Errorf(path.Span, rules.Body, "", "%v", err)
	} else if strings.ContainsAny(text, "?#") {
		b.Errorf(path.Span, rules.Body, "write what follows the question mark as query: {name: value}",
			"path must not hold ? and #, have %q", text)
	}
}

// unknownService suggests a declared service with a similar id, because most unknown ids are typing
// mistakes.
func unknownService(b *tree.Body, id string) {
	known := make([]string, len(b.Bundle.Services))
	for i, s := range b.Bundle.Services {
		known[i] = s.ID
	}
	hint := "declare it below services, with its url"
	if near := diag.Suggest(id, known); near != "" {
		hint = "did you mean " + near + "?"
	}
	b.Errorf(b.Field("service").Span, rules.UnknownService, hint, "service %q is not declared", id)
}

// checkURL reports before a deployment why a request would be refused at run time.
func checkURL(b *tree.Body, text string) {
	at := b.Field("url").Span
	const want = "write an absolute URL, such as http://127.0.0.1:9081/v1/orders"
	u, err := parseTarget(text)
	if err != nil {
		hint := ""
		if strings.HasPrefix(err.Error(), "url: ") {
			hint = want
		}
		b.Errorf(at, rules.Body, hint, "%v", err)
		return
	}
	if problem := urls.Problem(u); problem != "" {
		b.Errorf(at, rules.Body, want, "url %s", problem)
		return
	}
	if urls.IsPlaceholder(u) {
		b.Warnf(at, rules.Body, "write the host of your service, such as 127.0.0.1:9081", "url: no server has the name %s", u.Hostname())
	}
	if err := checkTarget(b.Bundle, u); err != nil {
		b.Errorf(at, rules.UnknownHost, "declare the host below services, and write service and path instead of url", "%v", err)
		return
	}
	// With services, the host belongs to one of them and may have any address.
	a, err := netip.ParseAddr(u.Hostname())
	if err != nil || len(b.Bundle.Services) > 0 || a.Unmap().IsLoopback() {
		return
	}
	if kind := outbound.NotPublic(a); kind != "" {
		b.Errorf(at, rules.UnknownHost, "declare the host below services, and write service and path instead of url",
			"%s belongs to no declared service, and its address is %s: no request goes there", origin(u), kind)
	}
}

// payloads are the fields that give a request a body.
var payloads = []string{"body", "form", "multipart", "cloudevent", "raw"}

// checkPayload checks the payload fields.
func checkPayload(b *tree.Body) {
	var given *expr.Value
	for _, name := range payloads {
		value := b.Field(name)
		if value == nil {
			continue
		}
		if given != nil {
			b.Errorf(value.Span, rules.Body, "keep one of body, form, multipart, cloudevent and raw", "a request has one body, and %s is a second one", name)
		}
		given = value
	}
	method, _ := b.Field("method").Text()
	switch {
	// A null body means no body: see [Request.method].
	case b.Field("body").Expr() != nil && b.Field("method") == nil && b.Field("body").Outline().Types()&datum.NullShape != 0:
		b.Warnf(given.Span, rules.Body, "add method: POST",
			"say the method: when the body turns out to be null, this would be a GET")
	case given != nil && (method == http.MethodGet || method == http.MethodHead):
		b.Warnf(given.Span, rules.Body, "send it as query, or change the method", "most services ignore the body of a %s", method)
	case given == nil && b.Field("content-type") != nil:
		b.Warnf(b.Field("content-type").Span, rules.Body, "add body, form, multipart, cloudevent or raw, or drop content-type",
			"content-type says nothing: the request has no body")
	}
}

// checkCredentials finds requests that do not get the credentials of their service, or that set the header of these.
func checkCredentials(b *tree.Body) {
	if text, ok := b.Field("url").Text(); ok {
		u, err := parseTarget(text)
		if err != nil {
			return
		}
		s := serviceAt(b.Bundle, u)
		if s == nil || s.Auth == nil && s.TLS == nil {
			return
		}
		has := "tls"
		if s.Auth != nil {
			has = "auth"
		}
		b.Warnf(b.Field("url").Span, rules.Auth, "write service: "+s.ID+" and path, instead of url",
			"a request with a url gets no credentials, although service %q has %s", s.ID, has)
		return
	}
	id, ok := b.Field("service").Text()
	if s := b.Bundle.Service(id); !ok || s == nil || s.Auth == nil {
		return
	}
	for _, k := range b.Field("headers").Keys() {
		if http.CanonicalHeaderKey(k.Name) == "Authorization" {
			b.Errorf(k.Span, rules.Auth, "delete the header, or auth of the service", "the auth of service %q sets the header Authorization", id)
		}
	}
}

// checkSecrets allows secrets only in fields that never reach a log, and only in requests to
// declared services.
func checkSecrets(b *tree.Body) {
	if len(b.Bundle.Services) == 0 {
		b.Value.Secrets(func(v *expr.Value) {
			b.Errorf(v.Span, rules.UnknownHost, "declare the host below services, and write service and path instead of url",
				"a secret is sent to a declared service only, and there is none")
		})
	}
	if v := b.Field("sign"); v != nil {
		keys := []*expr.Value{v}
		if v.Kind == expr.ValueList {
			keys = v.Elems
		}
		if i := slices.IndexFunc(keys, func(k *expr.Value) bool { return k.Kind != expr.ValueSecret }); i >= 0 || len(keys) == 0 {
			b.Errorf(v.Head(), rules.Body, "write !secret NAME, and give the value to the node", "what signs a request is a secret")
		}
	}
	for _, name := range []string{"url", "service", "path", "method", "raw", "content-type"} {
		v := b.Field(name)
		if v == nil || v.Expr() != nil {
			continue
		}
		if _, ok := v.Literal(); !ok {
			b.Errorf(v.Span, rules.Body, "send it in headers, query, body or form", "%s cannot be a secret", name)
		}
	}
}
