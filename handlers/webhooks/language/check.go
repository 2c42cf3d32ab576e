// Package language has what webhooks add to the language: the section webhooks of files, with its check and its rules.
package language

import (
	"regexp"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// Section is the section webhooks of files.
func Section() tree.Section {
	return tree.Section{
		Of: sectionSpec(), Rules: readRules,
		Check: func(value any, c *tree.Checking) {
			for _, w := range value.([]*Webhook) {
				check(w, c)
			}
		},
		Each: func(value any, visit func(tree.Declaration)) {
			for _, w := range value.([]*Webhook) {
				kind, _ := w.Type.Text()
				visit(tree.Declaration{
					Kind: "webhook", ID: w.ID, Span: w.Span, At: w.PlaceOf("id", w.Span),
					Owner: &w.Owner, OwnerAt: w.PlaceOf("owner", w.Span), Event: kind, From: w.Scheme + " provider",
				})
			}
		},
	}
}

// Roots are what expressions of a webhook may read.
var Roots = []string{"body", "headers"}

// check compiles the expressions of a webhook, and reports what its scheme cannot do.
func check(w *Webhook, c *tree.Checking) {
	scope := func() *expr.Scope { return &expr.Scope{Roots: Roots} }
	fields := sectionSpec().Field(sectionName).Elem.Spec
	for _, f := range []struct {
		name  string
		value *expr.Value
	}{{"when", w.When}, {"event-id", w.EventID}, {"type", w.Type}, {"key", w.Key}, {"payload", w.Payload}} {
		spec.Compile(f.value, fields.Field(f.name), scope(), c.Reporter)
	}
	if kind, ok := w.Type.Literal(); ok && !w.Payload.IsNull() {
		if kind, ok := kind.(string); ok {
			c.Fits(kind, w.Payload)
		}
	}
	at := w.PlaceOf("scheme", w.Span)
	for i, name := range w.Secrets {
		if !datum.TextForms["secret"].Expr.MatchString(name) {
			c.Errorf(w.PlaceOf("secrets", at), rules.Webhook, "want "+datum.TextForms["secret"].Want,
				"secret %d of webhook %q is no name: %q", i+1, w.ID, name)
		}
	}
	if len(w.Secrets) == 0 && !c.Blamed(w.Span) {
		c.Errorf(w.PlaceOf("secrets", at), rules.Webhook, "name the secret that the provider signs with", "webhook %q has no secrets", w.ID)
	}
	if w.Type != nil && w.Type.Kind == expr.ValueLiteral && w.Type.Scalar != nil {
		checkServed(w, c)
	}
	if w.Scheme != "hmac" {
		if w.Signature != nil && w.Scheme != "" { // another finding says that the scheme is none
			c.Errorf(w.PlaceOf("signature", at), rules.Webhook, "drop it, or write scheme: hmac",
				"webhook %q has a signature of its own, and scheme %s says how it is signed", w.ID, w.Scheme)
		}
		return
	}
	switch {
	case w.Signature == nil:
		c.Errorf(at, rules.Webhook, "write such as signature: {header: X-Signature}", "scheme hmac of webhook %q does not say how it signs", w.ID)
	default:
		checkSignature(w, c)
	}
	if w.EventID.IsNull() {
		c.Errorf(at, rules.Webhook, "name the delivery, such as event-id: !$ headers['x-delivery-id'] or event-id: !$ body.id",
			"webhook %q has no event-id: a repeated delivery would become a second event", w.ID)
	}
}

// checkServed reports a type that no pipeline serves. All requests would be forgotten.
func checkServed(w *Webhook, c *tree.Checking) {
	kind, _ := w.Type.Scalar.(string)
	if c.Partial || kind == "" || len(c.Bundle.On(kind)) > 0 || len(c.Bundle.Awaiting(kind)) > 0 {
		return
	}
	c.Errorf(w.PlaceOf("type", w.Span), rules.Webhook, c.SuggestOr(kind, diag.NamesIn(c.Bundle.Index.Serving), "write it below on: of a pipeline"),
		"no pipeline serves events of the type %q of webhook %q", kind, w.ID)
}

func checkSignature(w *Webhook, c *tree.Checking) {
	s := w.Signature
	if !strings.Contains(s.Signed, "{body}") {
		c.Errorf(s.PlaceOf("signed", s.Span), rules.Webhook, "want such as '{timestamp}.{body}'",
			"the signature of webhook %q does not cover {body}: anybody could replace it", w.ID)
	}
	if covers := strings.Contains(s.Signed, "{timestamp}"); covers != (s.Timestamp != "") {
		c.Errorf(s.PlaceOf("timestamp", s.Span), rules.Webhook, "write both timestamp: HEADER and {timestamp} in signed, or none",
			"the signature of webhook %q has a time that is not signed, or that has no header", w.ID)
	}
	for _, f := range []struct{ name, header string }{{"header", s.Header}, {"timestamp", s.Timestamp}} {
		if f.header != "" && !headerName.MatchString(f.header) {
			c.Errorf(s.PlaceOf(f.name, s.Span), rules.Webhook, "want such as X-Signature", "%q is no name of a header", f.header)
		}
	}
}

// headerName is what RFC 9110 allows as the name of a header.
var headerName = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")
