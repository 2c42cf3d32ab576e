package handlers_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"procaas/dsl/diag"
	"procaas/handlers"
)

// However the fields are put together, a request reaches declared services only.
func FuzzRequest(f *testing.F) {
	f.Add("http://a.example/v1", "", "/v1", "q", "v", "X-A")
	f.Add("", "a", "/../admin?x#y", "", "", "Host")
	f.Add("", "a", "//evil.example/", "a", "b", "X-A")
	f.Add("http://a.example@evil.example/", "", "", "a=b&c", "\x00", "X-A\r\nB")
	f.Add("http://①②⑦.0.0.1/", "", "", "", "", "")
	f.Add("http://a.example\\@evil.example", "a", "/%2e%2e/", "é", "é", "é")
	bundle, found := loadFiles(diag.File{Name: "f.yaml", Data: []byte(`services: [{id: a, url: "http://a.example/base/"}]`)})
	if bundle == nil {
		f.Fatal(found)
	}
	f.Fuzz(func(t *testing.T, target, service, path, name, value, header string) {
		call := newCall(transport(func(r *http.Request) (*http.Response, error) {
			if host := strings.TrimSuffix(strings.ToLower(r.URL.Host), ":80"); r.URL.Scheme != "http" || host != "a.example" {
				t.Errorf("reached %s", r.URL)
			}
			if service != "" && !strings.HasPrefix(r.URL.EscapedPath(), "/base/") {
				t.Errorf("left the path of the service: %s", r.URL)
			}
			if query, err := url.ParseQuery(r.URL.RawQuery); service != "" && (err != nil || query.Get(name) != value) {
				t.Errorf("the query %q does not say %q", r.URL.RawQuery, value)
			}
			return reply(r, 200, "", value), nil
		}))
		call.Bundle = bundle
		r := handlers.Request{
			URL: target, Service: service, Path: path, Form: map[string]any{name: value},
			Query: map[string]any{name: []any{value}}, Headers: map[string]any{header: value},
		}
		if _, err := r.Handle(t.Context(), call); err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
	})
}
