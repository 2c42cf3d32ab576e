package dsl_test

import (
	_ "embed"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"testing"

	"procaas/dsl"
)

//go:embed types_test.go
var typesSource string

// Request calls a service; a smaller brother of the built-in type.
type Request struct {
	// URL is the endpoint.
	URL string `yaml:"url"`

	// Service is the id of a declared service.
	Service string `yaml:"service"`

	// Path is the path below the URL of the service.
	Path string `yaml:"path"`

	// Method is the HTTP method.
	Method string `yaml:"method" enum:"GET,POST" default:"GET"`

	// Query holds the parameters after the question mark.
	Query map[string]any `yaml:"query"`

	// Headers are sent besides the engine's own.
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

// Wait parks the run.
type Wait struct {
	// For is how long.
	For string `yaml:"for" required:"true"`
}

// testTypes are the handler types of these tests.
func testTypes() []dsl.Type {
	return []dsl.Type{
		{Name: "request", Spec: dsl.SpecOf(reflect.TypeFor[Request](), typesSource), Check: checkRequest},
		{Name: "set", Spec: dsl.SpecOf(reflect.TypeFor[Set](), typesSource), SetsState: true},
		{Name: "wait", Spec: dsl.SpecOf(reflect.TypeFor[Wait](), typesSource)},
	}
}

func checkRequest(b *dsl.Body) {
	service, address := b.Field("service"), b.Field("url")
	if service != nil && address != nil {
		b.Errorf(address.Span, dsl.CodeBody, "keep one of them", "have both service and url")
	}
	if name, ok := service.Literal(); ok && service != nil && b.Bundle.Service(name.(string)) == nil {
		b.Errorf(service.Span, dsl.CodeUnknownService, "", "unknown service %q", name)
	}
	if text, ok := address.Literal(); ok && address != nil && service == nil {
		u, err := url.Parse(fmt.Sprint(text))
		known := slices.ContainsFunc(b.Bundle.Services, func(s *dsl.Service) bool { return err == nil && s.URL == u.Scheme+"://"+u.Host })
		if len(b.Bundle.Services) > 0 && !known {
			b.Errorf(address.Span, dsl.CodeUnknownHost, "", "no service has the host of %q", text)
		}
	}
}

// load loads one file and gives the findings.
func load(t testing.TB, text string) (*dsl.Bundle, []dsl.Diagnostic) {
	t.Helper()
	return dsl.Load([]dsl.File{{Name: "pipelines.yaml", Data: []byte(text)}}, dsl.Options{Types: testTypes()})
}
