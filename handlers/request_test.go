package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"procaas/dsl/datum"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/secrets"
	"procaas/handlers"
)

var now = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)

// newCall is a call as the driver makes it, with a transport of the test.
func newCall(t http.RoundTripper, services ...*tree.Service) *engine.Call {
	secrets := secrets.New(func(s datum.Secret) (string, error) {
		if s.Name != "TOKEN" {
			return "", fmt.Errorf("no secret %s", s.Name)
		}
		return "s3cr3t", nil
	})
	return &engine.Call{
		Path: "taxi/fetch/get-order", Run: "run-1", Flow: "order", Key: "o-1", Attempt: 2,
		IdempotencyKey: "5e1f", Now: now, Bundle: &tree.Bundle{Services: services},
		HTTP:        &http.Client{Transport: t},
		Event:       model.Event{Type: "taxi"},
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "congo=t61rcWkgMzE",
		Resolve: secrets.Resolve, Hide: secrets.Hide,
	}
}

var ordersService = &tree.Service{ID: "orders", URL: "http://orders.example"}

// A transport answers without a network.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func reply(r *http.Request, status int, contentType, body string) *http.Response {
	h := http.Header{}
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	return &http.Response{
		StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}
}

// replies answers every request in the same way.
func replies(status int, contentType, body string) transport {
	return func(r *http.Request) (*http.Response, error) { return reply(r, status, contentType, body), nil }
}

func TestRequestSendsWhatItsFieldsSay(t *testing.T) {
	t.Parallel()
	raw, empty := "<order/>", ""
	const target = "http://orders.example/v1/orders"
	for _, tc := range []struct {
		name    string
		request handlers.Request
		want    string // method, URL
		body    string
		headers map[string]string
	}{
		{name: "without a body it is a GET", request: handlers.Request{URL: target}, want: "GET " + target},
		{
			name: "with a body it is a POST", request: handlers.Request{URL: target, Body: map[string]any{"b": 1, "a": nil}},
			want: "POST " + target, body: `{"a":null,"b":1}`, headers: map[string]string{"Content-Type": "application/json"},
		},
		{name: "method", request: handlers.Request{URL: target, Method: "DELETE"}, want: "DELETE " + target},
		{
			name: "query", request: handlers.Request{URL: target, Query: map[string]any{
				"id": "a b&c", "n": 9007199254740993, "x": 0.1, "on": true, "none": nil, "tag": []any{"p", nil, "q"},
			}},
			want: "GET " + target + "?id=a+b%26c&n=9007199254740993&on=true&tag=p&tag=q&x=0.1",
		},
		{
			name: "query beside that of the url", request: handlers.Request{URL: target + "?a=1", Query: map[string]any{"b": 2}},
			want: "GET " + target + "?a=1&b=2",
		},
		{
			name: "form", request: handlers.Request{URL: target, Form: map[string]any{"a": 1, "b": []any{"x", "y"}}},
			want: "POST " + target, body: "a=1&b=x&b=y", headers: map[string]string{"Content-Type": "application/x-www-form-urlencoded"},
		},
		{
			name: "raw", request: handlers.Request{URL: target, Raw: &raw, ContentType: "application/xml"},
			want: "POST " + target, body: raw, headers: map[string]string{"Content-Type": "application/xml"},
		},
		{
			name: "empty raw is a body", request: handlers.Request{URL: target, Raw: &empty},
			want: "POST " + target, headers: map[string]string{"Content-Type": "text/plain; charset=utf-8"},
		},
		{
			name: "headers", request: handlers.Request{URL: target, Headers: map[string]any{
				"authorization": datum.Secret{Name: "TOKEN"}, "X-Number": 7, "X-None": nil, "user-agent": "taxi/1",
			}},
			want: "GET " + target, headers: map[string]string{
				"Authorization": "s3cr3t", "X-Number": "7", "X-None": "", "User-Agent": "taxi/1",
			},
		},
		{
			name:    "secrets anywhere in a body",
			request: handlers.Request{URL: target, Body: []any{map[string]any{"k": datum.Secret{Name: "TOKEN"}}}},
			want:    "POST " + target, body: `[{"k":"s3cr3t"}]`,
		},
		{name: "who asks", request: handlers.Request{URL: target}, want: "GET " + target, headers: map[string]string{
			"Idempotency-Key": "5e1f", "X-Procaas-Run": "run-1", "X-Procaas-Path": "taxi/fetch/get-order",
			"X-Procaas-Attempt": "2", "User-Agent": "procaas",
			"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate": "congo=t61rcWkgMzE",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var have *http.Request
			var body []byte
			call := newCall(transport(func(r *http.Request) (*http.Response, error) {
				have = r
				if r.Body != nil {
					body, _ = io.ReadAll(r.Body)
				}
				return reply(r, 200, "", ""), nil
			}), ordersService)
			if _, err := tc.request.Handle(t.Context(), call); err != nil {
				t.Fatal(err)
			}
			if line := have.Method + " " + have.URL.String(); line != tc.want {
				t.Errorf("have %s, want %s", line, tc.want)
			}
			if string(body) != tc.body {
				t.Errorf("body: have %s, want %s", body, tc.body)
			}
			for name, want := range tc.headers {
				if have := have.Header.Get(name); have != want {
					t.Errorf("header %s: have %q, want %q", name, have, want)
				}
			}
		})
	}
}

// A request changes nothing of its fields, which may share memory with the run, and returns nothing of them.
func TestRequestKeepsItsBody(t *testing.T) {
	t.Parallel()
	if request := handlers.All()[0]; request.Name != "request" || !request.KeepsBody {
		t.Fatalf("want the engine to rely on it, have %+v", request.Type)
	}
	secret := func() any { return datum.Secret{Name: "TOKEN"} }
	data := func() map[string]any {
		return map[string]any{"list": []any{map[string]any{"k": secret()}, 1, nil}, "text": "s3cr3t"}
	}
	for name, r := range map[string]handlers.Request{
		"body":       {Body: data(), Query: map[string]any{"q": []any{1, nil}, "n": nil}, Headers: map[string]any{"x-token": secret(), "x-none": nil}},
		"form":       {Form: map[string]any{"a": []any{secret(), "b"}, "none": nil}},
		"multipart":  {Multipart: []handlers.Part{{Name: "a", JSON: data()}, {Name: "b", Text: secret()}, {Name: "c", Text: nil}}},
		"cloudevent": {CloudEvent: &handlers.CloudEvent{Type: "order.paid", Data: data()}},
		"binary":     {CloudEvent: &handlers.CloudEvent{Type: "order.paid", Data: data(), Mode: "binary"}},
		"redirect":   {Query: map[string]any{"q": "1"}, Headers: map[string]any{"x-token": "t"}, Redirects: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.URL, r.Expect = "http://orders.example/", spec.Names{"2xx"}
			show := func() string {
				text := fmt.Sprintf("%#v %#v %#v %#v %#v", r.Body, r.Query, r.Headers, r.Form, r.Multipart)
				if r.CloudEvent != nil {
					text += fmt.Sprintf(" %#v", *r.CloudEvent)
				}
				return text
			}
			before := show()
			call := newCall(transport(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/" && r.Redirects > 0 {
					resp := reply(req, http.StatusTemporaryRedirect, "", "")
					resp.Header.Set("Location", "/moved")
					return resp, nil
				}
				return reply(req, http.StatusOK, "application/json", `{"token": "s3cr3t"}`), nil
			}), ordersService)
			result, err := r.Handle(t.Context(), call)
			if err != nil {
				t.Fatal(err)
			}
			result.Response.(map[string]any)["token"] = "hidden" // as the engine does with secrets
			if after := show(); after != before {
				t.Errorf("want %s, have %s", before, after)
			}
		})
	}
}

func TestRequestReadsReplies(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		request     handlers.Request
		status      int
		contentType string
		body        string
		want        any
		err         string // part of the error, which must be permanent
	}{
		{
			name: "JSON by its type", contentType: "application/json; charset=utf-8", body: `{"n": 9007199254740993}`,
			want: map[string]any{"n": 9007199254740993},
		},
		{name: "JSON by a suffix", contentType: "application/vnd.order+json", body: `[1]`, want: []any{1}},
		{name: "JSON of a careless service", body: ` {"a": 1}`, want: map[string]any{"a": 1}},
		{name: "JSON that Go takes for text", contentType: "text/plain; charset=utf-8", body: `{"a": 1}`, want: map[string]any{"a": 1}},
		{name: "JSON that a service takes for a page", contentType: "text/html; charset=utf-8", body: `{"a": 1}`, want: map[string]any{"a": 1}},
		{name: "JSON behind a byte order mark", contentType: "application/json", body: "\uFEFF" + `{"a": 1}`, want: map[string]any{"a": 1}},
		{name: "text behind a byte order mark", contentType: "text/plain", body: "\uFEFFa", want: "a"},
		{name: "text in Latin-1", contentType: "text/plain; charset=ISO-8859-1", body: "caf\xe9", want: "café"},
		{name: "JSON in Latin-1", contentType: "application/json;charset=iso-8859-1", body: "{\"a\": \"\xe9\"}", want: map[string]any{"a": "é"}},
		{name: "JSON in UTF-8 that says Latin-1", contentType: "application/json;charset=iso-8859-1", body: `["é"]`, want: []any{"é"}},
		{name: "text in UTF-16", contentType: "text/plain; charset=utf-16le", body: "h\x00i\x00", want: "hi"},
		{name: "text in UTF-8 by its name", contentType: "text/plain; charset=utf8", body: "é", want: "é"},
		{name: "text that only begins like JSON", contentType: "text/plain", body: `{name}`, want: "{name}"},
		{name: "a number in text stays text", contentType: "text/plain", body: `7`, want: "7"},
		{name: "bytes on demand", request: handlers.Request{Response: "bytes"}, contentType: "image/png", body: "\x89PNG\x00\xff", want: "iVBORwD/"},
		{name: "text on demand", request: handlers.Request{Response: "text"}, contentType: "application/json", body: `{}`, want: "{}"},
		{name: "JSON on demand", request: handlers.Request{Response: "json"}, contentType: "text/html", body: `7`, want: 7},
		{name: "nothing on demand", request: handlers.Request{Response: "none"}, body: "\xff", want: nil},
		{name: "no content", request: handlers.Request{Response: "json"}, status: 204, want: nil},
		{name: "empty", contentType: "application/json", body: "", want: nil},
		{
			name: "not JSON", contentType: "application/json", body: "<html>\n oops</html>",
			err: `GET http://orders.example/: reply 200 is not JSON`,
		},
		{name: "shows what it was", contentType: "application/json", body: "<html>\n oops</html>", err: `have "<html> oops</html>"`},
		{name: "broken JSON on demand", request: handlers.Request{Response: "json"}, body: "", err: "is not JSON"},
		{name: "not text", contentType: "image/png", body: "\x89PNG\xff", err: "is not text in UTF-8"},
		{name: "too large", request: handlers.Request{MaxResponse: 3}, body: "abcd", err: "larger than max-response, 3 bytes"},
		{name: "just not too large", request: handlers.Request{MaxResponse: 4}, body: "abcd", want: "abcd"},
		{name: "another status", request: handlers.Request{Expect: []string{"404", "2xx"}}, status: 404, body: "none", want: "none"},
		{name: "a class", request: handlers.Request{Expect: []string{"4xx"}}, status: 418, body: "tea", want: "tea"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.request.URL = "http://orders.example/"
			if tc.status == 0 {
				tc.status = 200
			}
			have, err := tc.request.Handle(t.Context(), newCall(replies(tc.status, tc.contentType, tc.body)))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || !model.IsPermanent(err) {
					t.Fatalf("have error %v, want a permanent one with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(model.Result{Response: tc.want, Status: tc.status}, have); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRequestBoundsRepliesByTheNode(t *testing.T) {
	t.Parallel()
	call := newCall(replies(200, "", "abcd"))
	call.MaxReply = 3
	_, err := (&handlers.Request{URL: "http://orders.example/"}).Handle(t.Context(), call)
	if err == nil || !strings.Contains(err.Error(), "3 bytes") {
		t.Errorf("have %v, want an error about 3 bytes", err)
	}
}

func TestRequestCountsWhatItSends(t *testing.T) {
	t.Parallel()
	sent := int64(0)
	call := newCall(replies(200, "", ""))
	call.Sent = func(bytes int64) { sent += bytes }
	for _, r := range []handlers.Request{{URL: "http://orders.example/"}, {URL: "http://orders.example/", Body: map[string]any{"a": 1}}} {
		if _, err := r.Handle(t.Context(), call); err != nil {
			t.Fatal(err)
		}
	}
	if want := int64(len(`{"a":1}`)); sent != want {
		t.Errorf("want %d bytes of two requests, one without a body, have %d", want, sent)
	}
}

func TestRequestReportsUnexpectedStatus(t *testing.T) {
	t.Parallel()
	r := handlers.Request{
		URL:     "http://orders.example/v1?token=abc",
		Headers: map[string]any{"Authorization": datum.Secret{Name: "TOKEN"}},
	}
	body := "bad token s3cr3t\r\n\x1b[31m" + strings.Repeat("x", 1000)
	_, err := r.Handle(t.Context(), newCall(replies(403, "text/plain", body), ordersService))
	status, ok := errors.AsType[*model.StatusError](err)
	if !ok {
		t.Fatalf("have %v, want a StatusError", err)
	}
	if status.Status != 403 || status.Method != "GET" || status.URL != "http://orders.example/v1" {
		t.Errorf("have %+v", status)
	}
	if !strings.HasPrefix(status.Excerpt, "bad token *** [31mxxx") || !strings.HasSuffix(status.Excerpt, "x…") {
		t.Errorf("excerpt: have %q", status.Excerpt)
	}
	if model.IsPermanent(err) {
		t.Error("the engine decides by the status whether it is repeated")
	}
}

func TestRequestKeepsTheBodyOfAnUnexpectedReply(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		body string
		want any
	}{
		{`{"code": "declined"}`, map[string]any{"code": "declined"}},
		{"declined", nil},
		{"", nil},
		{`"` + strings.Repeat("x", 64<<10) + `"`, nil}, // too long to be kept
	} {
		r := handlers.Request{URL: "http://orders.example/v1"}
		_, err := r.Handle(t.Context(), newCall(replies(402, "application/json", tc.body)))
		status, ok := errors.AsType[*model.StatusError](err)
		if !ok {
			t.Fatalf("have %v, want a StatusError", err)
		}
		if diff := cmp.Diff(tc.want, status.Body); diff != "" {
			t.Errorf("body %.20s (- want, + have):\n%s", tc.body, diff)
		}
	}
}

func TestRequestBelievesRetryAfter(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status int
		header string
		want   time.Duration
		ok     bool
	}{
		{503, "7", 7 * time.Second, true},
		{429, "0", 0, true},
		{503, now.Add(90 * time.Second).Format(http.TimeFormat), 90 * time.Second, true},
		{503, now.Add(-time.Hour).Format(http.TimeFormat), 0, true},
		{503, "4000000000", 24 * time.Hour, true},
		{503, "-7", 0, false},
		{503, "soon", 0, false},
		{503, "", 0, false},
		{404, "7", 7 * time.Second, true},
		{304, "7", 0, false},
	} {
		call := newCall(transport(func(r *http.Request) (*http.Response, error) {
			resp := reply(r, tc.status, "", "")
			resp.Header.Set("Retry-After", tc.header)
			return resp, nil
		}))
		_, err := (&handlers.Request{URL: "http://orders.example/"}).Handle(t.Context(), call)
		have, ok := model.RetryDelay(err)
		if have != tc.want || ok != tc.ok {
			t.Errorf("%d with Retry-After %q: have %v %v, want %v %v", tc.status, tc.header, have, ok, tc.want, tc.ok)
		}
		if status, ok := errors.AsType[*model.StatusError](err); !ok || status.Status != tc.status {
			t.Errorf("%d with Retry-After %q: have %v, want a StatusError", tc.status, tc.header, err)
		}
	}
}

func TestRequestRefusesWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	const target = "http://orders.example/"
	orders := &tree.Service{ID: "orders", URL: "http://orders.example:8080/base"}
	for _, tc := range []struct {
		name     string
		request  handlers.Request
		services []*tree.Service
		want     string
	}{
		{name: "relative", request: handlers.Request{URL: "/v1"}, want: "url must be absolute"},
		{name: "empty", request: handlers.Request{}, want: "url must be absolute"},
		{name: "no host", request: handlers.Request{URL: "http://:80/"}, want: "url must be absolute"},
		{name: "scheme", request: handlers.Request{URL: "file:///etc/passwd"}, want: "url must be absolute"},
		{name: "broken", request: handlers.Request{URL: "http://[::1"}, want: "url: missing ']'"},
		{name: "password", request: handlers.Request{URL: "http://u:p@orders.example/"}, want: "must not hold a user and password"},
		{
			name: "foreign host", request: handlers.Request{URL: "http://169.254.169.254/"}, services: []*tree.Service{orders},
			want: "http://169.254.169.254:80 belongs to no declared service: orders (http://orders.example:8080/base)",
		},
		{
			name: "foreign port", request: handlers.Request{URL: target}, services: []*tree.Service{orders},
			want: "belongs to no declared service",
		},
		{
			name: "foreign scheme", request: handlers.Request{URL: "https://orders.example:8080/"}, services: []*tree.Service{orders},
			want: "belongs to no declared service",
		},
		{name: "unknown service", request: handlers.Request{Service: "pay", Path: "/"}, want: `service "pay" is not declared`},
		{
			name: "secret", request: handlers.Request{URL: target, Body: datum.Secret{Name: "GONE"}}, services: []*tree.Service{ordersService},
			want: "body: secret GONE: no secret GONE",
		},
		{
			name: "secret for a stranger", request: handlers.Request{URL: target, Query: map[string]any{"k": datum.Secret{Name: "TOKEN"}}},
			want: "secret TOKEN: a secret is sent to a declared service only",
		},
		{
			name: "mapping in a query", request: handlers.Request{URL: target, Query: map[string]any{"a": map[string]any{}}},
			want: "query: a: want a simple value",
		},
		{
			name: "list of lists in a form", request: handlers.Request{URL: target, Form: map[string]any{"a": []any{[]any{}}}},
			want: "form: a: want a simple value",
		},
		{
			name: "line break in a header", request: handlers.Request{URL: target, Headers: map[string]any{"X-A": "a\r\nX-B: b"}},
			want: "headers: X-A: control characters",
		},
		{
			name: "name of a header", request: handlers.Request{URL: target, Headers: map[string]any{"X A": 1}},
			want: `"X A" is no name of a header`,
		},
		{
			name: "the engine's header", request: handlers.Request{URL: target, Headers: map[string]any{"idempotency-key": 1}},
			want: "idempotency-key is set by the engine",
		},
		{
			name: "line break in a content type", request: handlers.Request{URL: target, Body: 1, ContentType: "a/b\r\nX-B: b"},
			want: "content-type: control characters",
		},
		{
			name: "content type", request: handlers.Request{URL: target, Headers: map[string]any{"content-type": "a/b"}},
			want: "set by the field content-type",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			call := newCall(transport(func(*http.Request) (*http.Response, error) {
				t.Error("the request was sent")
				return nil, io.EOF
			}), tc.services...)
			_, err := tc.request.Handle(t.Context(), call)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !model.IsPermanent(err) {
				t.Errorf("have %v, want a permanent error with %q", err, tc.want)
			}
		})
	}
}

func TestRequestTellsNetworkErrors(t *testing.T) {
	t.Parallel()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "short")
	}))
	t.Cleanup(broken.Close)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	for _, tc := range []struct {
		name, url, want string
		request         handlers.Request
		timeout         bool
	}{
		{name: "refused", url: "http://127.0.0.1:1", want: "refused"},
		{name: "broken off", url: broken.URL, want: "unexpected EOF"},
		{name: "timeout", url: silent.URL, want: "no whole answer within " +
			"10ms", request: handlers.Request{Timeout: 10 * time.Millisecond}, timeout: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.request.URL = tc.url + "/v1?card=4111"
			_, err := tc.request.Handle(t.Context(), newCall(http.DefaultTransport))
			err = fmt.Errorf("attempt 1: %w", err)
			network, ok := errors.AsType[net.Error](err)
			if !ok || network.Timeout() != tc.timeout || model.IsPermanent(err) {
				t.Errorf("have %v, want a network error, timeout %v", err, tc.timeout)
			}
			if !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "4111") {
				t.Errorf("have %v, want %q and no query", err, tc.want)
			}
		})
	}
}

func TestRequestChoosesItsTimeout(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name             string
		request, handler time.Duration
		want             time.Duration
	}{
		{name: "default", want: 5 * time.Second},
		{name: "its own", request: 7 * time.Second, want: 7 * time.Second},
		{name: "the handler's", handler: time.Minute, want: time.Minute},
		{name: "the shorter one", request: time.Second, handler: time.Minute, want: time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tc.handler > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.handler)
					defer cancel()
				}
				start := time.Now()
				r := handlers.Request{URL: "http://orders.example/", Timeout: tc.request}
				call := newCall(transport(func(r *http.Request) (*http.Response, error) {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}))
				call.Timeout = tc.handler
				_, err := r.Handle(ctx, call)
				if have := time.Since(start); have != tc.want {
					t.Errorf("gave up after %v, want %v", have, tc.want)
				}
				if says := "no whole answer within " + tc.want.String(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), says) {
					t.Errorf("have %v, want deadline exceeded and %q", err, says)
				}
			})
		})
	}
}

// A service learns how much time is left until the deadline, which is no timeout of the attempt.
func TestRequestTellsTheTimeLeft(t *testing.T) {
	t.Parallel()
	for left, want := range map[time.Duration]string{0: "", 1500 * time.Millisecond: "1500", time.Microsecond: "0"} {
		have := "none"
		call := newCall(transport(func(r *http.Request) (*http.Response, error) {
			have = r.Header.Get("X-Procaas-Time-Left")
			return reply(r, 200, "", ""), nil
		}))
		call.TimeLeft = left
		r := handlers.Request{URL: "http://orders.example/"}
		if _, err := r.Handle(t.Context(), call); err != nil || have != want {
			t.Errorf("%s left: want %q in the header, have %q, %v", left, want, have, err)
		}
	}
}

// A slow connection takes some of the time: the service is never told of more than is left.
func TestTimeLeftIsMeasuredWhenTheRequestIsWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		have := ""
		call := newCall(transport(func(r *http.Request) (*http.Response, error) {
			time.Sleep(400 * time.Millisecond) // as a dial
			httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
			have = r.Header.Get("X-Procaas-Time-Left")
			return reply(r, 200, "", ""), nil
		}))
		call.TimeLeft = time.Second
		r := handlers.Request{URL: "http://orders.example/"}
		if _, err := r.Handle(t.Context(), call); err != nil || have != "600" {
			t.Errorf("want 600 in the header, have %q, %v", have, err)
		}
	})
}

// hops answers with redirects along a list of URLs and notes who asked what.
func hops(targets ...string) (transport, *[]*http.Request) {
	var seen []*http.Request
	return func(r *http.Request) (*http.Response, error) {
		seen = append(seen, r)
		if len(seen) > len(targets) {
			return reply(r, 200, "", "arrived"), nil
		}
		resp := reply(r, 307, "", "")
		resp.Header.Set("Location", targets[len(seen)-1])
		return resp, nil
	}, &seen
}

// A service must not pass the secrets that it is sent on to another one.
func TestRedirectsDoNotCarrySecretsToOtherServices(t *testing.T) {
	t.Parallel()
	answer, seen := hops("/2", "http://b.example/")
	r := handlers.Request{URL: "http://a.example/1", Redirects: 5, Body: map[string]any{"key": datum.Secret{Name: "TOKEN"}}}
	_, err := r.Handle(t.Context(), newCall(answer, &tree.Service{ID: "a", URL: "http://a.example"},
		&tree.Service{ID: "b", URL: "http://b.example"}))
	if err == nil || !model.IsPermanent(err) || !strings.Contains(err.Error(), "service a redirects to http://b.example:80") ||
		len(*seen) != 2 {
		t.Errorf("want two requests and a permanent error, have %d and %v", len(*seen), err)
	}
}

// A 301 or 302 would make a GET of a POST, and the handler would succeed without its effect.
func TestRedirectDoesNotLoseTheBody(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status int
		method string
		asGet  bool
		want   string // methods of the requests
		err    string
	}{
		{301, "POST", false, "POST", "redirect-as-get"},
		{302, "POST", false, "POST", "redirect-as-get"},
		{302, "POST", true, "POST GET", ""},
		{303, "POST", false, "POST GET", ""},
		{308, "POST", false, "POST POST", ""},
		{301, "GET", false, "GET GET", ""},
	} {
		var methods []string
		call := newCall(transport(func(r *http.Request) (*http.Response, error) {
			methods = append(methods, r.Method)
			if len(methods) > 1 {
				return reply(r, 200, "", ""), nil
			}
			resp := reply(r, tc.status, "", "")
			resp.Header.Set("Location", "/2")
			return resp, nil
		}))
		r := handlers.Request{URL: "http://orders.example/1", Method: tc.method, Redirects: 1, RedirectAsGet: tc.asGet}
		if tc.method == "POST" {
			r.Body = map[string]any{"a": 1}
		}
		_, err := r.Handle(t.Context(), call)
		if have := strings.Join(methods, " "); have != tc.want {
			t.Errorf("%d after %s: have %s, want %s", tc.status, tc.method, have, tc.want)
		}
		if (err == nil) != (tc.err == "") || err != nil && (!strings.Contains(err.Error(), tc.err) || !model.IsPermanent(err)) {
			t.Errorf("%d after %s: have %v, want %q", tc.status, tc.method, err, tc.err)
		}
	}
}

func TestRequestFollowsRedirectsOnDemand(t *testing.T) {
	t.Parallel()
	services := []*tree.Service{{ID: "a", URL: "http://a.example"}, {ID: "b", URL: "http://b.example"}}
	for _, tc := range []struct {
		name      string
		redirects int
		hops      []string
		err       string
		permanent bool
		bare      int // number of the first request without the pipeline's headers; 0: none
	}{
		{name: "not by default", hops: []string{"/2"}, err: "307"},
		{name: "as many as allowed", redirects: 2, hops: []string{"/2", "/3"}},
		{name: "not more", redirects: 1, hops: []string{"/2", "/3"}, err: "307"},
		{name: "to another service", redirects: 2, hops: []string{"http://b.example/", "/3"}, bare: 1},
		{name: "there and back", redirects: 2, hops: []string{"http://b.example/", "http://a.example/admin"}, bare: 1},
		{
			name: "not to a stranger", redirects: 2, hops: []string{"http://169.254.169.254/latest"}, err: "belongs to no declared service",
			permanent: true,
		},
		{name: "not to another scheme", redirects: 2, hops: []string{"ftp://a.example/"}, err: "neither http nor https", permanent: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			answer, seen := hops(tc.hops...)
			r := handlers.Request{
				URL: "http://a.example/1?id=7", Redirects: tc.redirects, Body: map[string]any{"a": 1},
				Headers: map[string]any{"Authorization": datum.Secret{Name: "TOKEN"}, "X-Api-Key": "k"},
			}
			have, err := r.Handle(t.Context(), newCall(answer, services...))
			if tc.err == "" && (err != nil || have.Response != "arrived") {
				t.Fatalf("have %v, %v, want the last reply", have.Response, err)
			}
			if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err) || model.IsPermanent(err) != tc.permanent) {
				t.Fatalf("have %v, want an error with %q, permanent %v", err, tc.err, tc.permanent)
			}
			for i, r := range *seen {
				bare := tc.bare > 0 && i >= tc.bare
				for _, name := range []string{"Authorization", "X-Api-Key"} {
					if (r.Header.Get(name) == "") != bare {
						t.Errorf("request %d to %s: %s is %q", i, r.URL, name, r.Header.Get(name))
					}
				}
				if r.Header.Get("Idempotency-Key") == "" || (i > 0 && bare && r.Header.Get("Referer") != "") {
					t.Errorf("request %d to %s: headers %v", i, r.URL, r.Header)
				}
			}
		})
	}
}

// What is put together from a user's text is sent as one URL, with any contents.
func TestComputedURLsAreEscaped(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"http://a.example/v1/a b?q=x y&r=1":      "/v1/a%20b?q=x%20y&r=1",
		"http://a.example/v1?q=a%20b&r=\"<é>\"":  "/v1?q=a%20b&r=%22%3C%C3%A9%3E%22",
		"http://a.example/?x[]=1&y=a+b|c{d}^`\\": "/?x[]=1&y=a+b%7Cc%7Bd%7D%5E%60%5C",
	} {
		have := ""
		call := newCall(transport(func(r *http.Request) (*http.Response, error) {
			have = r.URL.RequestURI()
			return reply(r, 200, "", ""), nil
		}))
		r := handlers.Request{URL: text, Method: "GET"}
		if _, err := r.Handle(t.Context(), call); err != nil || have != want {
			t.Errorf("%s: want %s, have %s, %v", text, want, have, err)
		}
	}
}
