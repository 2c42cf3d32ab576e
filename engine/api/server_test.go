package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/api"
	"procaas/engine/api/problem"
	"procaas/engine/api/transport"
	"procaas/engine/credentials"
	"procaas/engine/intake"
	"procaas/engine/records"
	"procaas/engine/store"
)

func post(h http.Handler, body string) *httptest.ResponseRecorder {
	return postCtx(context.Background(), h, body)
}

func postCtx(ctx context.Context, h http.Handler, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/events", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestClientThatHasGoneSubmitsNothing(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w := postCtx(ctx, api.New(withProducts(f, api.Options{})), `{"type": "new-order-created"}`)
	if len(f.seen) != 0 || w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "client_left") {
		t.Errorf("have %d events and reply %d %q, want none, and 503 for one that closed its half only", len(f.seen), w.Code, w.Body)
	}
}

// A hungEngine accepts nothing before its caller stops waiting.
type hungEngine struct{ *fakeEngine }

func (hungEngine) Submit(ctx context.Context, _ []intake.Submission) ([]intake.Submitted, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestStoreThatHangsIsAReply(t *testing.T) {
	t.Parallel()
	b := taxi(t)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w := post(api.New(withProducts(hungEngine{newFake(b)}, api.Options{})), `{"type": "new-order-created"}`)
		limit := transport.Server(nil, slog.New(slog.DiscardHandler)).WriteTimeout
		if w.Code != http.StatusServiceUnavailable || time.Since(start) >= limit {
			t.Errorf("have %d after %s, want 503 before the connection is cut at %s", w.Code, time.Since(start), limit)
		}
	})
}

func TestDelayIsFromNow(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	synctest.Test(t, func(t *testing.T) {
		r := httptest.NewRequest(http.MethodPost, "/v1/queues/mail/tasks", strings.NewReader(`[{"delay": "1h30m"}, {"delay": 0.5}]`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		api.New(withProducts(f, api.Options{})).ServeHTTP(w, r)
		if w.Code != http.StatusAccepted {
			t.Fatalf("have %d %s", w.Code, w.Body)
		}
		for i, want := range []time.Duration{90 * time.Minute, 500 * time.Millisecond} {
			if have := time.Until(f.seen[i].At); have != want {
				t.Errorf("task %d: have due in %s, want %s", i, have, want)
			}
		}
	})
}

func TestDefectIsLoggedAndTheStoreIsNotNamed(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := newFake(taxi(t))
	h := api.New(withProducts(f, api.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}))
	f.panics = true
	if w := post(h, `{"type": "new-order-created"}`); strings.Contains(w.Body.String(), "secret-row") ||
		w.Code != http.StatusInternalServerError {
		t.Errorf("have %d %s, want 500 without the cause", w.Code, w.Body)
	}
	f.panics, f.down = false, true
	if w := post(h, `{"type": "new-order-created"}`); strings.Contains(w.Body.String(), "secret-host") {
		t.Errorf("have %s, want the cause for the log only", w.Body)
	}
	for _, want := range []string{"secret-row", "fake_test.go", "secret-host"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("have log %s, want %q in it", log.String(), want)
		}
	}
}

func TestNoTokenAndNoQueryInTheLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := api.New(withProducts(newFake(taxi(t)), api.Options{
		Token: "s3cret",
		Log:   slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}))
	for _, token := range []string{"s3cret", "wr0ng"} {
		r := httptest.NewRequest(http.MethodGet, "/admin/v1/handlers?q=hidd3n", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	if n := strings.Count(log.String(), "msg=request method=GET url_path=/admin/v1/handlers"); n != 2 {
		t.Errorf("have %d lines, want one for each request: %s", n, log.String())
	}
	for _, never := range []string{"s3cret", "wr0ng", "hidd3n"} {
		if strings.Contains(log.String(), never) {
			t.Errorf("have %s in the log: %s", never, log.String())
		}
	}
}

func TestAllRepliesForbidGuessing(t *testing.T) {
	t.Parallel()
	h := api.New(withProducts(newFake(taxi(t)), api.Options{}))
	for _, path := range []string{"/", "/v1/runs", "/nothing", "/metrics", "/openapi.json"} {
		w := get(h, path)
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: have headers %v", path, w.Header())
		}
	}
}

func TestMetricsAreShown(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "procaas_events_accepted_total", Help: "Events."})
	r.MustRegister(c)
	c.Inc()
	w := get(api.New(withProducts(newFake(taxi(t)), api.Options{Registry: r})), "/metrics")
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "procaas_events_accepted_total 1") {
		t.Errorf("have %d %s", w.Code, w.Body)
	}
}

// serve runs the API on a real connection.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := transport.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := transport.Server(h, slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return l.Addr().String()
}

// TestSmugglingIsRefused speaks to the server byte by byte: each request means
// two things to two readers, or is no HTTP.
func TestSmugglingIsRefused(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	addr := serve(t, api.New(withProducts(f, api.Options{})))
	const start = "POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	const body = `{"type": "new-order-created"}`
	for name, request := range map[string]string{
		"length and chunks":  start + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n1d\r\n" + body + "\r\n0\r\n\r\n",
		"chunks":             start + "Transfer-Encoding: chunked\r\n\r\n1d\r\n" + body + "\r\n0\r\n\r\n",
		"two lengths":        start + "Content-Length: 29\r\nContent-Length: 4\r\n\r\n" + body,
		"signed length":      start + "Content-Length: +29\r\n\r\n" + body,
		"odd coding":         start + "Transfer-Encoding: xchunked\r\n\r\n1d\r\n" + body + "\r\n0\r\n\r\n",
		"space before colon": start + "Content-Length : 29\r\n\r\n" + body,
		"two hosts":          start + "Host: y\r\nContent-Length: 29\r\n\r\n" + body,
		"headers too long":   start + "X: " + strings.Repeat("x", 32<<10) + "\r\nContent-Length: 29\r\n\r\n" + body,
		"binary event":       "POST /v1/events HTTP/1.1\r\nHost: x\r\nce-specversion: 1.0\r\nce-id: a\x00b\r\nContent-Length: 0\r\n\r\n",
	} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		reply, _ := io.ReadAll(c) // the server closes; a reset is as good
		if !strings.HasPrefix(string(reply), "HTTP/1.1 4") && !strings.HasPrefix(string(reply), "HTTP/1.1 501") {
			t.Errorf("%s: have reply %q, want a refusal", name, reply)
		}
		_ = c.Close()
	}
	if len(f.seen) != 0 {
		t.Errorf("have %d events, want none", len(f.seen))
	}
}

func TestSilentClientIsCut(t *testing.T) {
	t.Parallel()
	addr := serve(t, api.New(withProducts(newFake(taxi(t)), api.Options{})))
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST /v1/events HTTP/1.1\r\nHost:"); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a client that sends half a header was held for a minute")
	}
}

func TestProblemIsAlwaysJSON(t *testing.T) {
	t.Parallel()
	h := api.New(withProducts(newFake(taxi(t)), api.Options{}))
	for _, body := range []string{"{", `{"type": 1}`, `{"type": "nobody"}`} {
		w := post(h, body)
		var p problem.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || p.Code == "" || p.Type == "" || p.Title == "" ||
			p.Detail == "" {
			t.Errorf("%s: have %d %s", body, w.Code, w.Body)
		}
	}
}

// sender returns a function that sends a request with a token.
func sender(h http.Handler) func(token, method, path, body string) *httptest.ResponseRecorder {
	return func(token, method, path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
}

// TestEverySteeringCallLooksAtPaths sends each call of operators with a token that
// is bound to another path. Only what names its own path may do something.
func TestEverySteeringCallLooksAtPaths(t *testing.T) {
	t.Parallel()
	calls := map[string]struct{ path, body string }{
		"retry-run":                   {"/v1/runs/run-1/retry", ""},
		"cancel-run":                  {"/v1/runs/run-1/cancel", ""},
		"migrate-run":                 {"/v1/runs/run-1/migrate", ""},
		"rerun-run":                   {"/v1/runs/run-1/rerun", `{"from": "notify"}`},
		"retry-runs":                  {"/v1/runs/retry", `{"pipeline": "new-order-created"}`},
		"make-up-runs":                {"/v1/runs/make-up", `{"handler": "new-order-created/notify/note"}`},
		"cancel-runs":                 {"/v1/runs/cancel", `{"handler": "mail/send", "status": "failed"}`},
		"migrate-runs":                {"/v1/runs/migrate", `{"key": "k"}`},
		"set-pipeline-control":        {"/admin/v1/controls/mail", `{"rate_limit": "1/s"}`},
		"set-stage-control":           {"/admin/v1/controls/new-order-created/notify", `{"rate_limit": "1/s"}`},
		"set-handler-control":         {"/admin/v1/controls/new-order-created/notify/note", `{"rate_limit": "1/s"}`},
		"set-compensation-control":    {"/admin/v1/controls/new-order-created/notify/note/compensate", `{"rate_limit": "1/s"}`},
		"remove-compensation-control": {"/admin/v1/controls/new-order-created/notify/note/compensate", ""},
		"remove-pipeline-control":     {"/admin/v1/controls/mail", ""},
		"remove-stage-control":        {"/admin/v1/controls/new-order-created/notify", ""},
		"remove-handler-control":      {"/admin/v1/controls/new-order-created/notify/note", ""},
		"undo-control":                {"/admin/v1/controls/undo", `{"revision": 1}`},
		"end-fallbacks":               {"/admin/v1/fallbacks/end", `{"path": "new-order-created"}`},
		"run-trigger":                 {"/v1/triggers/nightly/run", `{}`},
		"backfill-trigger":            {"/v1/triggers/nightly/backfill", `{"from": "2026-01-01T00:00:00Z"}`},
		"order-shard-transfer":        {"/admin/v1/transfers/t_1/order", `{"want": "pause"}`},
		"split-placement":             {"/admin/v1/shard-maps/mail/split", `{"at": "42"}`},
		"merge-placement":             {"/admin/v1/shard-maps/mail/merge", `{"at": "42"}`},
		"remove-shard-map":            {"/admin/v1/shard-maps/mail/remove", `{"forget": true}`},
		"set-shard":                   {"/admin/v1/shard-maps/mail/shards/s1", `{"closed": "full"}`},
		"pull-lever":                  {"/admin/v1/clusters/fanout/levers/freeze", `{"reason": "x"}`},
		"release-lever":               {"/admin/v1/clusters/fanout/levers/freeze", ""},
		"set-config":                  {"/admin/v1/configs/CITIES", `{"value": ["x"]}`},
		"set-queue":                   {"/admin/v1/queues/thumbs", `{"mode": "paused"}`},
		"cancel-queued":               {"/admin/v1/queues/thumbs/cancel", `{"key": "k"}`},
		"retry-queued":                {"/admin/v1/queues/thumbs/retry", `{"key": "k"}`},
		"move-queued":                 {"/admin/v1/queues/thumbs/move", `{"to": "mail"}`},
		"claim-tasks":                 {"/v1/queues/claim", `{"worker": "w", "types": [{"type": "thumbs"}]}`},
		"heartbeat-tasks":             {"/v1/queues/heartbeat", `{"receipts": ["1.1.1.thumbs"]}`},
		"complete-tasks":              {"/v1/queues/complete", `{"receipts": ["1.1.1.thumbs"]}`},
		"fail-tasks":                  {"/v1/queues/fail", `{"tasks": [{"receipt": "1.1.1.thumbs"}]}`},
		"snooze-tasks":                {"/v1/queues/snooze", `{"tasks": [{"receipt": "1.1.1.thumbs"}]}`},
	}
	f := newFake(taxi(t))
	f.known["t"] = credentials.Grant{Name: "other", Role: credentials.RoleOperator, Paths: []string{"mail/send"}}
	h := api.New(withProducts(f, api.Options{Token: "admin"}, products{tasks: newTaskServer(t, api.Options{}).tasks}))
	send := sender(h)
	for _, setup := range []struct{ method, path, body string }{
		{http.MethodPut, "/admin/v1/controls/new-order-created", `{"rate_limit": "5/s"}`}, // revision 1 of the audit
		{http.MethodPost, "/v1/events", `{"type": "new-order-created", "key": "k"}`},
	} {
		if w := send("admin", setup.method, setup.path, setup.body); w.Code >= 300 {
			t.Fatal(w.Body)
		}
	}
	f.audit = append(f.audit, records.AuditView{Kind: store.AuditControl, Name: "new-order-created"})
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string                `json:"operationId"`
			Security    []map[string][]string `json:"security"`
		}
	}
	if err := json.Unmarshal(get(h, "/openapi.json").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	for _, methods := range doc.Paths {
		for method, o := range methods {
			if len(o.Security) == 0 || o.Security[0]["token"][0] != "operator" {
				continue
			}
			c, known := calls[o.OperationID]
			if !known {
				t.Errorf("%s: this test does not know how to call it", o.OperationID)
				continue
			}
			if w := send("t", strings.ToUpper(method), c.path, c.body); w.Code != http.StatusForbidden {
				t.Errorf("%s: want 403 for the token of another path, have %d %s", o.OperationID, w.Code, w.Body)
			}
		}
	}
}
