package api_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine"
	"procaas/engine/api"
	"procaas/engine/api/client"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/credentials"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/sqlite"
	"procaas/engine/stats"
	"procaas/engine/store"
	"procaas/handlers"
)

// A node is a real engine on a real store behind the API.
type node struct {
	*client.Client
	url    string
	orders *atomic.Int32 // status that the service of orders replies with
	calls  *atomic.Int32 // of that service
}

func newNode(t *testing.T, change ...func(*engine.Options)) node {
	t.Helper()
	n := node{orders: new(atomic.Int32), calls: new(atomic.Int32)}
	n.orders.Store(http.StatusOK)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(n.orders.Load()))
		_, _ = w.Write([]byte(`{"city": "north", "price": 9007199254740993}`))
	}))
	t.Cleanup(service.Close)

	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "procaas.db"), sqlite.Options{Migrate: true, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	o := engine.DefaultOptions()
	o.Store, o.Types, o.Bundle, o.Metrics = store.Ports(), handlers.All(), load(t, service.URL), stats.NewMetrics(metrics)
	for _, f := range change {
		f(&o)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	e := enginetest.Start(t, o)
	srv := httptest.NewServer(api.New(withProducts(e, api.Options{Registry: metrics, Version: "v1"})))
	n.url, n.Client = srv.URL, client.New(srv.URL, "")
	t.Cleanup(srv.Close)
	n.until(t, "the node is ready", func() bool { return n.status(t, "/readyz") == http.StatusOK })
	return n
}

// until waits for something that happens soon.
func (n node) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	patience.Until(t, what, holds)
}

func (n node) status(t *testing.T, path string) int {
	t.Helper()
	reply, err := http.Get(n.url + path)
	if err != nil {
		t.Fatal(err)
	}
	_ = reply.Body.Close()
	return reply.StatusCode
}

// ended waits for a run to end.
func (n node) ended(t *testing.T, id string) checkpoint.RunView {
	t.Helper()
	var run checkpoint.RunView
	n.until(t, "run "+id+" ends", func() bool {
		var err error
		if run, err = n.Run(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return run.Status.Ended()
	})
	return run
}

func code(err error) string {
	var p *problem.Problem
	if !errors.As(err, &p) {
		return ""
	}
	return p.Code
}

func TestOrderFromEventToEntity(t *testing.T) {
	t.Parallel()
	n, ctx := newNode(t), t.Context()
	order := wire.Event{Type: "new-order-created", ID: "e-1", Source: "orders", Payload: map[string]any{"order-id": "o/42"}}
	receipt, err := n.SubmitEvent(ctx, order)
	if err != nil || receipt.Duplicate {
		t.Fatalf("have %+v, %v", receipt, err)
	}
	run := n.ended(t, receipt.Run)
	if run.Status != model.Succeeded || run.Key != "o/42" || len(run.Handlers) != 2 {
		t.Fatalf("have %+v", run)
	}
	for _, h := range run.Handlers {
		if h.Outcome != "succeeded" || h.Attempts != 1 || h.Started == nil || h.Finished == nil {
			t.Errorf("have handler %+v", h)
		}
	}

	again, err := n.SubmitEvent(ctx, order)
	if err != nil || !again.Duplicate || again.Run != receipt.Run {
		t.Errorf("have %+v, %v, want a duplicate of %s", again, err, receipt.Run)
	}
	order.Payload = map[string]any{"order-id": "o/43"}
	if _, err := n.SubmitEvent(ctx, order); code(err) != "id_conflict" {
		t.Errorf("have %v, want id_conflict", err)
	}
	if calls := n.calls.Load(); calls != 1 {
		t.Errorf("have %d calls of the service, want 1", calls)
	}

	entity, err := n.Entity(ctx, "taxi-order", "o/42")
	if err != nil || entity.State != "searching" || entity.SharedState["status"] != "searching in north" || len(entity.Runs) != 1 {
		t.Errorf("have %+v, %v", entity, err)
	}
	run.Event.Payload, run.SharedState = nil, nil // which lists do not have
	if len(entity.Runs) == 1 && !reflect.DeepEqual(entity.Runs[0], run) {
		t.Errorf("below its key the run is\n%+v, want it as it is by itself:\n%+v", entity.Runs[0], run)
	}
	page, err := n.Runs(ctx, store.RunFilter{Flow: "taxi-order", Status: model.Succeeded})
	if err != nil || len(page.Items) != 1 || page.Next != nil {
		t.Errorf("have %+v, %v", page, err)
	}
	found, err := n.Handlers(ctx)
	if err != nil || !slices.ContainsFunc(found, func(h stats.HandlerInfo) bool {
		return h.Path == "new-order-created/fetch-order/get-order" && h.Calls == 1 && *h.SuccessRatio == 1 && h.Owner == "team-orders"
	}) {
		t.Errorf("have %+v, %v", found, err)
	}
	if s := n.status(t, "/"); s != http.StatusOK {
		t.Errorf("have %d from the page", s)
	}
}

func TestSenderLearnsThatTheFlowGoesByAnotherKey(t *testing.T) {
	t.Parallel()
	n, ctx := newNode(t), t.Context()
	for order, c := range map[string]struct{ own, told string }{
		"o-1": {"", ""}, "o-2": {"o-2", ""}, "o-3": {"user-1", "o-3"},
	} {
		receipt, err := n.SubmitEvent(ctx, wire.Event{Type: "new-order-created", Key: c.own, Payload: map[string]any{"order-id": order}})
		if err != nil || receipt.Key != c.told {
			t.Errorf("of an event with the key %q: have %+v, %v, want the key %q told", c.own, receipt, err, c.told)
		}
	}
	reply, err := n.Submit(ctx, []byte(`[{"type": "new-order-created", "key": "user-1", "payload": {"order-id": "o-4"}}]`))
	if err != nil || !strings.Contains(string(reply), `"key":"o-4"`) {
		t.Errorf("of an array: have %s, %v", reply, err)
	}
}

func TestFailedRunIsRetriedAndCancelled(t *testing.T) {
	t.Parallel()
	n, ctx := newNode(t), t.Context()
	n.orders.Store(http.StatusInternalServerError)
	receipt, err := n.SubmitEvent(ctx, wire.Event{Type: "new-order-created", Payload: map[string]any{"order-id": "o-1"}})
	if err != nil {
		t.Fatal(err)
	}
	run := n.ended(t, receipt.Run)
	if run.Status != model.Failed || run.FailedPath != "new-order-created/fetch-order/get-order" {
		t.Fatalf("have %+v", run)
	}
	if _, err := n.Cancel(ctx, "00000000-0000-0000-0000-000000000000", ""); code(err) != "run_not_found" {
		t.Errorf("have %v, want run_not_found", err)
	}
	n.orders.Store(http.StatusOK)
	if _, err := n.Retry(ctx, receipt.Run, ""); err != nil {
		t.Fatal(err)
	}
	n.until(t, "the retried run succeeds", func() bool {
		run, err := n.Run(ctx, receipt.Run)
		return err == nil && run.Status == model.Succeeded
	})
	if _, err := n.Retry(ctx, receipt.Run, ""); code(err) != "run_not_failed" {
		t.Errorf("have %v, want run_not_failed", err)
	}
	if _, err := n.Cancel(ctx, receipt.Run, "late"); code(err) != "run_already_finished" {
		t.Errorf("have %v, want run_already_finished", err)
	}
}

func TestEngineRefusesWithCodes(t *testing.T) {
	t.Parallel()
	n, ctx := newNode(t), t.Context()
	for want, e := range map[string]wire.Event{
		"unknown_event_type": {Type: "new-order-craeted"},
		"missing_key":        {Type: "new-order-created"},
		"event_rejected":     {Type: "order-finished", Payload: map[string]any{"order-id": "o-1"}},
		"invalid_event":      {Type: "mail-wanted", ID: "a\nb"},
	} {
		if _, err := n.SubmitEvent(ctx, e); code(err) != want {
			t.Errorf("%+v: have %v (%s), want %s", e, err, code(err), want)
		}
	}
	var p *problem.Problem
	_, err := n.SubmitEvent(ctx, wire.Event{Type: "mail-bounced", Payload: map[string]any{"mail/id": 5}})
	if !errors.As(err, &p) || p.Code != "invalid_payload" || p.Status != http.StatusUnprocessableEntity || len(p.Errors) != 1 ||
		p.Errors[0].Location != "/payload/mail~1id" || p.Errors[0].Message != "want a string, have 5" {
		t.Errorf("have %+v, want an invalid_payload that names the place", p)
	}
	page, err := n.Runs(ctx, store.RunFilter{})
	if err != nil || len(page.Items) != 0 {
		t.Errorf("have %d runs, %v, want none", len(page.Items), err)
	}
	if _, err := n.Runs(ctx, store.RunFilter{Cursor: "?"}); code(err) != "invalid_parameter" {
		t.Errorf("have %v, want invalid_parameter", err)
	}
	if _, err := n.Entity(ctx, "trucks", "x"); code(err) != "flow_not_found" {
		t.Errorf("have %v, want flow_not_found", err)
	}
	if fresh, err := n.Entity(ctx, "taxi-order", "never-seen"); err != nil || fresh.State != "created" || fresh.Runs == nil {
		t.Errorf("have %+v, %v, want a fresh entity", fresh, err)
	}
}

// Each door says in which part an event differs from the first one with its id, and where that is in the request.
func TestConflictSaysWhatDiffersAtEachDoor(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const (
		plain = `{"type": "new-order-created", "id": "e-1", "source": "orders", "priority": 1, "payload": {"order-id": "o-1", "n": %d}}`
		cloud = `{"specversion": "1.0", "type": "new-order-created", "id": "e-1", "source": "orders", "priority": 1,
			"data": {"order-id": "o-1", "n": %d}}`
		good = `, {"type": "new-order-created", "id": "e-2", "source": "orders", "payload": {"order-id": "o-2"}}]`
	)
	post := func(media, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url+"/v1/events", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", media)
		if media == "application/json" && !strings.Contains(body, "new-order-created") {
			req.Header["Ce-Specversion"], req.Header["Ce-Type"] = []string{"1.0"}, []string{"new-order-created"}
			req.Header["Ce-Id"], req.Header["Ce-Source"], req.Header["Ce-Priority"] = []string{"e-1"}, []string{"orders"}, []string{"2"}
		}
		reply, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		if err != nil {
			t.Fatal(err)
		}
		return reply.StatusCode, string(text)
	}
	if status, text := post("application/json", fmt.Sprintf(plain, 1)); status != http.StatusAccepted {
		t.Fatalf("have %d: %s", status, text)
	}
	for door, d := range map[string]struct {
		media, body string
		status      int
		at          []string
	}{
		"plain":        {"application/json", fmt.Sprintf(plain, 2), http.StatusConflict, []string{`"/payload/n"`}},
		"array":        {"application/json", "[" + fmt.Sprintf(plain, 2) + "]", http.StatusUnprocessableEntity, nil},
		"one of two":   {"application/json", "[" + fmt.Sprintf(plain, 2) + good, http.StatusMultiStatus, []string{`"/0/payload/n"`}},
		"structured":   {"application/cloudevents+json", fmt.Sprintf(cloud, 2), http.StatusConflict, []string{`"/data/n"`}},
		"batch":        {"application/cloudevents-batch+json", "[" + fmt.Sprintf(cloud, 2) + "]", http.StatusUnprocessableEntity, nil},
		"binary":       {"application/json", `{"order-id": "o-1", "n": 2}`, http.StatusConflict, []string{`"/n"`, `"header/ce-priority"`}},
		"binary as it": {"application/json", `{"order-id": "o-1", "n": 1}`, http.StatusConflict, []string{`"header/ce-priority"`}},
	} {
		status, text := post(d.media, d.body)
		says := "here payload.n has another value"
		if strings.HasPrefix(door, "binary") {
			says = "here priority has another value"
		}
		if status != d.status || !strings.Contains(text, "id_conflict") || !strings.Contains(text, says) {
			t.Errorf("%s: want %d with %q, have %d: %s", door, d.status, says, status, text)
		}
		for _, at := range d.at {
			if !strings.Contains(text, `"location":`+at) {
				t.Errorf("%s: want the location %s, have %s", door, at, text)
			}
		}
	}
}

func TestConfigsAreLive(t *testing.T) {
	t.Parallel()
	n, ctx := newNode(t), t.Context()
	set, err := n.SetConfig(ctx, "CITIES", wire.ConfigChange{Value: []string{"north"}, Reason: "start"}, 0)
	if err != nil || set.Revision == 0 || set.By != "anonymous" || set.Reason != "start" {
		t.Fatalf("have %+v, %v", set, err)
	}
	if _, err := n.SetConfig(ctx, "CITIES", wire.ConfigChange{Value: []string{}}, 0); code(err) != "config_changed" {
		t.Errorf("have %v, want config_changed", err)
	}
	if _, err := n.SetConfig(ctx, "CITIES", wire.ConfigChange{Value: []string{"north", "south"}}, set.Revision); err != nil {
		t.Error(err)
	}
	if _, err := n.SetConfig(ctx, "CITEIS", wire.ConfigChange{Value: 1}, -1); code(err) != "unknown_config" {
		t.Errorf("have %v, want unknown_config", err)
	}
	configs, err := n.Configs(ctx)
	if err != nil || len(configs) != 2 || configs[0].Name != "CITIES" || configs[0].Revision <= set.Revision {
		t.Errorf("have %+v, %v", configs, err)
	}
}

func TestTasksRun(t *testing.T) {
	t.Parallel()
	n, ctx := newNode(t), t.Context()
	reply, err := http.Post(n.url+"/v1/queues/mail/tasks", "application/json",
		strings.NewReader(`[{"payload": {"to": "u-7"}}, {"payload": 2, "delay": "1h"}]`))
	if err != nil {
		t.Fatal(err)
	}
	_ = reply.Body.Close()
	if reply.StatusCode != http.StatusAccepted {
		t.Fatalf("have %s", reply.Status)
	}
	var page wire.Page[checkpoint.RunView]
	n.until(t, "the task that is due has run", func() bool {
		page, err = n.Runs(ctx, store.RunFilter{Pipeline: "mail", Status: model.Succeeded})
		return err == nil && len(page.Items) == 1
	})
	later, err := n.Runs(ctx, store.RunFilter{Pipeline: "mail", Status: model.Waiting})
	if err != nil || len(later.Items) != 1 || later.Items[0].Due == nil || page.Items[0].Event.Type != "mail-wanted" {
		t.Errorf("have %+v, %v, want one task that waits for its time", later, err)
	}
}

// Whatever form an event has, it cannot come from the engine itself.
func TestReservedSourceIsRefusedAtEveryDoor(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const order = `{"order-id": "o-1"}`
	plain := func(source string) string {
		return `{"type": "new-order-created", "id": "e-1", "source": "` + source + `", "payload": ` + order + `}`
	}
	cloud := func(source string) string {
		return `{"specversion": "1.0", "type": "new-order-created", "id": "e-1", "source": "` + source + `", "data": ` + order + `}`
	}
	for name, c := range map[string]struct{ media, body, source string }{
		"plain":              {"application/json", plain("procaas/trigger/tick"), ""},
		"another case":       {"application/json", plain("PROCAAS/trigger/tick"), ""},
		"a leading slash":    {"application/json", plain("/procaas/trigger/tick"), ""},
		"escaped in JSON":    {"application/json", plain("procaas\\u002ftrigger/tick"), ""},
		"percent signs":      {"application/json", plain("procaas%2Ftrigger/tick"), ""},
		"an array":           {"application/json", "[" + plain("procaas/trigger/tick") + "]", ""},
		"a signature":        {"application/json", plain("console/boss"), ""},
		"signed in an array": {"application/json", "[" + plain("Console%2Fboss") + "]", ""},
		"signed, structured": {"application/cloudevents+json", cloud("/console/boss"), ""},
		"signed in a batch":  {"application/cloudevents-batch+json", "[" + cloud("console/boss") + "]", ""},
		"signed, binary":     {"application/json", order, "console/boss"},
		"structured":         {"application/cloudevents+json", cloud("procaas/run/1"), ""},
		"structured as JSON": {"application/json", cloud("procaas/run/1"), ""},
		"batch":              {"application/cloudevents-batch+json", "[" + cloud("procaas/queue/work") + "]", ""},
		"binary":             {"application/json", order, "procaas/pipeline/a"},
		"binary, encoded":    {"application/json", order, "procaas%2Fpipeline%2Fa"},
		"binary, quoted":     {"application/json", order, `"procaas/pipeline/a"`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url+"/v1/events", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", c.media)
		if c.source != "" {
			for header, value := range map[string]string{
				"Ce-Specversion": "1.0", "Ce-Type": "new-order-created", "Ce-Id": "e-1",
				"Ce-Source": c.source,
			} {
				req.Header.Set(header, value)
			}
		}
		reply, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		if err != nil || reply.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(string(text), "is reserved") {
			t.Errorf("%s: want 422, have %s: %s, %v", name, reply.Status, text, err)
		}
	}
	if runs, err := n.Runs(t.Context(), store.RunFilter{Limit: 10}); err != nil || len(runs.Items) != 0 {
		t.Errorf("want nothing stored, have %v, %v", runs, err)
	}
}

// TestSourcesAreBoundToTokens submits events at every door as callers who may or may not use their
// source: nobody takes an id of a source that is bound to the token of another program.
func TestSourcesAreBoundToTokens(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	root, err := n.NewToken(t.Context(), wire.NewToken{Name: "root", Role: string(credentials.RoleAdmin)})
	if err != nil {
		t.Fatal(err)
	}
	admin := client.New(n.url, root.Secret)
	secrets := map[string]string{"root": root.Secret}
	for name, sources := range map[string][]string{"shop": {"orders"}, "eve": nil} {
		made, err := admin.NewToken(t.Context(), wire.NewToken{Name: name, Role: string(credentials.RoleSubmitter), Sources: sources})
		if err != nil {
			t.Fatal(err)
		}
		secrets[name] = made.Secret
	}
	for _, reserved := range []string{"console", "console/boss", "procaas", "PROCAAS/run", ""} {
		_, err := admin.NewToken(t.Context(), wire.NewToken{Name: "boss", Role: string(credentials.RoleSubmitter), Sources: []string{reserved}})
		if err == nil {
			t.Errorf("want no token for the source %q", reserved)
		}
	}
	const (
		plain = `{"type": "new-order-created", "id": "%s", "source": "%s", "payload": {"order-id": "%[1]s"}}`
		cloud = `{"specversion": "1.0", "type": "new-order-created", "id": "%s", "source": "%s", "data": {"order-id": "%[1]s"}}`
	)
	doors := map[string]struct{ media, body string }{
		"plain": {"application/json", plain}, "array": {"application/json", "[" + plain + "]"},
		"structured": {"application/cloudevents+json", cloud}, "batch": {"application/cloudevents-batch+json", "[" + cloud + "]"},
		"binary": {"application/json", ""},
	}
	for door, d := range doors {
		for _, c := range []struct {
			who, source string
			want        int
		}{
			{"eve", "orders", 403},
			{"eve", "orders/eu", 403},
			{"root", "orders", 403},
			{"eve", "orders-eu", 202},
			{"shop", "orders", 202},
			{"shop", "orders/eu", 202},
			{"shop", "elsewhere", 403},
			{"root", "elsewhere", 202},
		} {
			id := fmt.Sprintf("%s-%s", door, c.source)
			body := fmt.Sprintf(`{"order-id": %q}`, id)
			if d.body != "" {
				body = fmt.Sprintf(d.body, id, c.source)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url+"/v1/events", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", d.media)
			req.Header.Set("Authorization", "Bearer "+secrets[c.who])
			if d.body == "" {
				for name, value := range map[string]string{"Specversion": "1.0", "Type": "new-order-created", "Id": id, "Source": c.source} {
					req.Header.Set("Ce-"+name, value)
				}
			}
			reply, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(reply.Body)
			_ = reply.Body.Close()
			if err != nil || reply.StatusCode != c.want {
				t.Errorf("%s: %s as %s: want %d, have %s: %s, %v", door, c.source, c.who, c.want, reply.Status, text, err)
			}
		}
	}
	receipt, err := client.New(n.url, secrets["shop"]).SubmitEvent(t.Context(), wire.Event{
		Type: "new-order-created", ID: "e-1", Payload: map[string]any{"order-id": "o-2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	run, err := admin.Run(t.Context(), receipt.Run)
	if err != nil || run.Event.Source != "orders" {
		t.Errorf("want the source that the token is bound to, have %q, %v", run.Event.Source, err)
	}
	audit, err := admin.Audit(t.Context(), store.AuditFilter{Kind: store.AuditRefusal, Limit: 100}, "")
	if err != nil || len(audit.Items) != 3 { // each token and call once
		t.Errorf("want a refusal of each token in the audit, have %+v, %v", audit.Items, err)
	}
	if _, err := admin.RevokeToken(t.Context(), "shop", ""); err != nil {
		t.Fatal(err)
	}
	_, err = client.New(n.url, secrets["eve"]).SubmitEvent(t.Context(), wire.Event{
		Type: "new-order-created", ID: "e-2", Source: "orders", Payload: map[string]any{"order-id": "o-3"},
	})
	if err != nil {
		t.Errorf("want the source free after its token is revoked, have %v", err)
	}
}
