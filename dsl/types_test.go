package dsl_test

import (
	"embed"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"testing"
	"time"

	"procaas/dsl"
	"procaas/dsl/contracts"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

//go:embed types_test.go
var typesFiles embed.FS

// Request calls a service; a smaller brother of the built-in type.
type Request struct {
	// URL is the endpoint.
	URL string `yaml:"url"`

	// Service is the id of a declared service.
	Service string `yaml:"service"`

	// Path is the path below the URL of the service.
	Path string `yaml:"path"`

	// Method is the HTTP method.
	Method string `yaml:"method" enum:"GET,POST,PUT" default:"GET"`

	// Query holds the parameters after the question mark.
	Query map[string]any `yaml:"query"`

	// Headers are sent in addition to the engine's own.
	Headers map[string]any `yaml:"headers"`

	// Body is sent as JSON.
	Body any `yaml:"body"`

	// Expect lists the statuses of success.
	Expect []string `yaml:"expect" default:"2xx"`

	// Redirects is how many redirects are followed.
	Redirects int `yaml:"redirects" min:"0" max:"10"`
}

// Set computes names of the shared state.
type Set struct {
	// Values are the names and their new values.
	Values map[string]any `yaml:",inline"`
}

// Emit sends an event.
type Emit struct {
	// Type is the type of the event.
	Type string `yaml:"type" required:"true"`

	// Payload is what it says.
	Payload any `yaml:"payload"`
}

// Wait parks the run.
type Wait struct {
	// For is how long.
	For string `yaml:"for" required:"true"`
}

// testTypes are the handler types of these tests.
func testTypes() []tree.Type {
	return []tree.Type{
		{Name: "request", Spec: spec.Of(reflect.TypeFor[Request](), spec.Read(typesFiles)), Check: checkRequest, Operation: callOf, Takes: takesOf},
		{Name: "set", Spec: spec.Of(reflect.TypeFor[Set](), spec.Read(typesFiles)), SetsState: true},
		{Name: "emit", Spec: spec.Of(reflect.TypeFor[Emit](), spec.Read(typesFiles)), Check: checkEmit, Emission: func(body *expr.Value) tree.Emission {
			return tree.Emission{Type: body.Get("type"), Payload: body.Get("payload"), Named: body.Get("id") != nil}
		}},
		{Name: "wait", Spec: spec.Of(reflect.TypeFor[Wait](), spec.Read(typesFiles))},
	}
}

func checkEmit(b *tree.Body) {
	event, ok := b.Field("type").Text()
	if ok && len(b.Bundle.On(event)) == 0 && len(b.Bundle.Awaiting(event)) == 0 {
		b.Errorf(b.Field("type").Span, rules.UnservedEvent, "declare a pipeline with on: "+event+", and stages: [] if it has nothing to do",
			"no pipeline serves the event %q", event)
	}
}

func checkRequest(b *tree.Body) {
	service, address := b.Field("service"), b.Field("url")
	if service != nil && address != nil {
		b.Errorf(address.Span, rules.Body, "keep one of them", "have both service and url")
	}
	if name, ok := service.Literal(); ok && service != nil && b.Bundle.Service(name.(string)) == nil {
		b.Errorf(service.Span, rules.UnknownService, "", "unknown service %q", name)
	}
	if text, ok := address.Literal(); ok && address != nil && service == nil {
		u, err := url.Parse(fmt.Sprint(text))
		known := slices.ContainsFunc(b.Bundle.Services, func(s *tree.Service) bool { return err == nil && s.URL == u.Scheme+"://"+u.Host })
		if len(b.Bundle.Services) > 0 && !known {
			b.Errorf(address.Span, rules.UnknownHost, "", "no service has the host of %q", text)
		}
	}
}

// callOf tells what of a service a request calls.
// takesOf is what an attempt of a request takes.
func takesOf(*tree.Body) tree.Longest { return tree.Longest{Time: 5 * time.Second} }

func callOf(body *expr.Value) (contracts.Operation, bool) {
	o := contracts.Operation{
		Method: "GET", Path: body.Get("path"), Query: body.Get("query"), Body: body.Get("body"),
		NoBody: body.Get("body") == nil, Expect: []string{"2xx"}, JSON: true,
	}
	if !o.NoBody {
		o.Method = "POST"
	}
	service, _ := body.Get("service").Literal()
	method, given := body.Get("method").Literal()
	if given && method != nil {
		o.Method = method.(string)
	}
	if list, ok := body.Get("expect").Literal(); ok && list != nil {
		o.Expect = nil
		for _, status := range list.([]any) {
			o.Expect = append(o.Expect, fmt.Sprint(status))
		}
	}
	name, ok := service.(string)
	o.Service = name
	return o, ok || body.Get("service") == nil
}

// load loads one file, or several that are separated as in the goldens, and
// returns the findings.
func load(t testing.TB, text string) (*tree.Bundle, []diag.Diagnostic) {
	t.Helper()
	files := splitFiles(text)
	if len(files) == 1 {
		files[0].Name = "pipelines.yaml"
	}
	return dsl.Load(files, dsl.Options{Language: language(), Types: testTypes()})
}
