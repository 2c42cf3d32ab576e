package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"procaas/engine/api"
	"procaas/engine/api/client"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/model"
	"procaas/engine/store"
)

func newClient(t *testing.T, token, serverToken string) (*client.Client, *fakeEngine) {
	t.Helper()
	f := newFake(taxi(t))
	srv := httptest.NewServer(api.New(api.Options{Engine: portsOf(f), Token: serverToken, Open: rest.OpenGroups()}))
	t.Cleanup(srv.Close)
	return client.New(srv.URL+"/", token), f
}

func TestClientFollowsARun(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, f := newClient(t, "", "")
	e := wire.Event{Type: "new-order-created", ID: "e-1", Key: "a/b c%", Payload: map[string]any{"n": 9007199254740993}}
	first, err := c.SubmitEvent(ctx, e)
	if err != nil || first.Run != "run-1" || first.Duplicate {
		t.Fatalf("have %+v, %v", first, err)
	}
	if again, err := c.SubmitEvent(ctx, e); err != nil || !again.Duplicate || again.Run != first.Run {
		t.Errorf("have %+v, %v, want a duplicate of %s", again, err, first.Run)
	}
	raw, err := c.Submit(ctx, []byte(`[{"type": "new-order-created", "id": "e-2"}]`))
	var receipts wire.Receipts
	if err != nil || json.Unmarshal(raw, &receipts) != nil || len(receipts.Items) != 1 || receipts.Items[0].Run != "run-2" {
		t.Errorf("have %s, %v", raw, err)
	}

	run, err := c.Run(ctx, first.Run)
	if err != nil || run.Event.Payload.(map[string]any)["n"].(json.Number) != "9007199254740993" {
		t.Errorf("have %+v, %v, want the exact number", run.Event, err)
	}
	page, err := c.Runs(ctx, store.RunFilter{Limit: 1, Pipeline: "new-order-created", Status: model.Waiting})
	if err != nil || len(page.Items) != 1 || page.Next == nil || page.Items[0].ID != "run-2" {
		t.Errorf("have %+v, %v", page, err)
	}
	entity, err := c.Entity(ctx, "taxi-order", "a/b c%")
	if err != nil || entity.Key != "a/b c%" || len(entity.Runs) != 1 {
		t.Errorf("have %+v, %v", entity, err)
	}
	f.end("run-1", model.Failed)
	if run, err := c.Retry(ctx, "run-1", ""); err != nil || run.Generation != 1 {
		t.Errorf("have %+v, %v", run, err)
	}
	if run, err := c.Cancel(ctx, "run-1", "wrong city"); err != nil || run.Status != model.Cancelled || run.Reason != "wrong city" {
		t.Errorf("have %+v, %v", run, err)
	}
}

func TestClientGivesProblems(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, f := newClient(t, "", "s3cret")
	for name, test := range map[string]struct {
		call   func() error
		status int
		code   string
	}{
		"run":      {func() error { _, err := c.Run(ctx, "run-9"); return err }, 404, "run_not_found"},
		"event":    {func() error { _, err := c.SubmitEvent(ctx, wire.Event{Type: "nobody"}); return err }, 422, "unknown_event_type"},
		"retry":    {func() error { _, err := c.Retry(ctx, "run-9", ""); return err }, 401, "unauthorized"},
		"handlers": {func() error { _, err := c.Handlers(ctx); return err }, 401, "unauthorized"},
	} {
		var p *problem.Problem
		if err := test.call(); !errors.As(err, &p) || p.Status != test.status || p.Code != test.code {
			t.Errorf("%s: have %v, want %d %s", name, err, test.status, test.code)
		}
	}
	f.down = true
	var p *problem.Problem
	if _, err := c.Run(ctx, "run-1"); !errors.As(err, &p) || p.RetryAfter() != time.Second {
		t.Errorf("have %v, want a problem that says when to repeat", err)
	}
}

func TestClientBearsTheToken(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, f := newClient(t, "s3cret", "s3cret")
	if handlers, err := c.Handlers(ctx); err != nil || len(handlers) != 2 {
		t.Errorf("have %v, %v", handlers, err)
	}
	set, err := c.SetConfig(ctx, "CITIES", wire.ConfigChange{Value: []string{"north"}, Reason: "start"}, 0)
	if err != nil || set.Revision != 1 || f.actors[0] != (store.Actor{Name: "admin", Reason: "start"}) {
		t.Errorf("have %+v, %v by %v", set, err, f.actors)
	}
	var p *problem.Problem
	if _, err := c.SetConfig(ctx, "CITIES", wire.ConfigChange{Value: []string{}}, 0); !errors.As(err, &p) || p.Code != "config_changed" {
		t.Errorf("have %v, want config_changed", err)
	}
	if _, err := c.SetConfig(ctx, "CITIES", wire.ConfigChange{Value: []string{}}, -1); err != nil {
		t.Error(err)
	}
	if configs, err := c.Configs(ctx); err != nil || len(configs) != 2 {
		t.Errorf("have %v, %v", configs, err)
	}
}

func TestClientOfAnotherServer(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/runs/gone" {
			http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
			return
		}
		_, _ = w.Write([]byte("<html>hello</html>"))
	}))
	t.Cleanup(srv.Close)
	c := client.New(srv.URL, "")
	var p *problem.Problem
	if _, err := c.Run(context.Background(), "gone"); !errors.As(err, &p) || p.Status != http.StatusBadGateway || p.Error() == "" {
		t.Errorf("have %v, want a problem without a code", err)
	}
	if _, err := c.Run(context.Background(), "x"); err == nil || errors.As(err, &p) && p.Code != "" {
		t.Errorf("have %v, want an error", err)
	}
}
