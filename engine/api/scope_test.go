package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/api"
	"procaas/engine/credentials"
	"procaas/engine/records"
	"procaas/engine/store"
)

// TestBoundReadersSeeOnlyTheirPaths calls every reading operation and every page as bearers of
// tokens that are bound to another pipeline: no answer has anything of the first one.
func TestBoundReadersSeeOnlyTheirPaths(t *testing.T) {
	t.Parallel()
	const secret = "of-nobody-else" // in whatever belongs to the pipeline
	f := newFake(taxi(t))
	for name, g := range map[string]credentials.Grant{
		"viewer": {Role: credentials.RoleViewer, Paths: []string{"mail"}}, "operator": {Role: credentials.RoleOperator, Paths: []string{"mail/send"}},
		"owner": {Role: credentials.RoleViewer, Paths: []string{getOrder}}, "all": {Role: credentials.RoleViewer},
	} {
		g.Name = name
		f.known[name] = g
	}
	metrics := prometheus.NewRegistry()
	runs := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "procaas_test_total"}, []string{"pipeline", "status"})
	metrics.MustRegister(runs)
	runs.WithLabelValues("new-order-created", secret).Inc()
	runs.WithLabelValues("mail", "mine").Inc()
	h := api.New(withProducts(f, api.Options{Token: "admin", Registry: metrics}, products{tasks: newTaskServer(t, api.Options{}).tasks}))
	send := sender(h)
	for _, setup := range []struct{ method, path, body string }{
		{http.MethodPut, "/admin/v1/controls/new-order-created", `{"rate_limit": "5/s", "reason": "` + secret + `"}`},
		{http.MethodPost, "/v1/events", `{"type": "new-order-created", "id": "e-1", "key": "` + secret + `", "payload": {"x": "` + secret + `"}}`},
		{http.MethodPost, "/v1/queues/thumbs/tasks", `{"payload": {"x": "` + secret + `"}, "key": "` + secret + `"}`},
	} {
		if w := send("admin", setup.method, setup.path, setup.body); w.Code >= 300 {
			t.Fatal(w.Body)
		}
	}
	for _, kind := range []string{store.AuditControl, store.AuditRun, store.AuditToken, store.AuditConfig, store.AuditEvent, store.AuditQueue} {
		f.audit = append(f.audit, records.AuditView{
			Revision: int64(len(f.audit) + 1), Kind: kind, Name: "new-order-created", Reason: secret,
			After: map[string]any{"pipeline": "new-order-created"},
		})
	}
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string                `json:"operationId"`
			Security    []map[string][]string `json:"security"`
		}
	}
	if err := json.Unmarshal(get(h, "/openapi.json").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("{id}", "run-1", "{flow}", "taxi-order", "{key}", secret, "{pipeline}", "thumbs", "{version}", "abcd", "{other}", "abce",
		"{cluster}", "c", "{partition}", "1", "{map}", "m")
	var paths []string
	for path, methods := range doc.Paths {
		if o, ok := methods["get"]; ok && len(o.Security) > 0 && slices.ContainsFunc(o.Security, func(of map[string][]string) bool {
			return slices.Contains(of["token"], "viewer")
		}) {
			paths = append(paths, fill.Replace(path))
		}
	}
	if len(paths) < 25 {
		t.Fatalf("want all reading operations, have %q", paths)
	}
	paths = append(paths, "/v1/runs?pipeline=new-order-created", "/v1/runs?key="+secret, "/v1/runs?status=waiting", "/v1/runs/run-1?wait=1s",
		"/v1/runs/run-1/explain?path="+getOrder, "/v1/recordings?pipeline=new-order-created", "/admin/v1/audit?kind=run", "/metrics",
		"/admin/v1/queues/thumbs/tasks?key="+secret, "/", "/console/pipelines/new-order-created", "/console/handlers/"+getOrder, "/console/runs",
		"/console/runs?pipeline=new-order-created", "/console/runs/run-1", "/console/runs/run-1/why/"+getOrder, "/console/runs/run-1/compare",
		"/console/keys/taxi-order/"+secret, "/console/queue", "/console/queue/thumbs", "/console/inbox", "/console/clusters", "/console/shards",
		"/console/incidents", "/console/incidents.md", "/console/triggers", "/console/audit", "/console/costs?by=handler", "/console/versions", "/console/marks", "/console/data",
		"/console/data?handler="+getOrder, "/console/submit?run=run-1&type=new-order-created", "/console/submit?type=new-order-created&from=run-1")
	for _, path := range paths {
		for _, who := range []string{"viewer", "operator"} {
			w := send(who, http.MethodGet, path, "")
			body := strings.ReplaceAll(w.Body.String(), path, "") // the error may name what was asked for
			body = strings.ReplaceAll(body, `"`+secret+`"`, `"`)
			if w.Code < 300 && strings.Contains(w.Body.String(), secret) {
				t.Errorf("%s: the %s of mail reads %d\n%s", path, who, w.Code, w.Body)
			}
			if strings.Contains(body, getOrder) && w.Code < 300 {
				t.Errorf("%s: the %s of mail reads about %s: %d\n%s", path, who, getOrder, w.Code, w.Body)
			}
		}
	}
	for _, who := range []string{"owner", "all"} {
		for _, path := range []string{
			"/v1/runs", "/v1/runs/run-1", "/v1/runs?pipeline=new-order-created", "/admin/v1/audit", "/metrics", "/admin/v1/controls",
			"/console/runs/run-1", "/console/audit",
		} {
			if w := send(who, http.MethodGet, path, ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), secret) {
				t.Errorf("%s: want it for %s, have %d\n%s", path, who, w.Code, w.Body)
			}
		}
	}
}
