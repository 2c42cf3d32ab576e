package enginetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers"
	"procaas/handlers/webhooks"
	"procaas/handlers/webhooks/language"
)

const notifyFlow = `
services: [{id: desk, url: URL}]
flows:
  - {id: thing, key: !$ event.id, notify: [{id: watch, on: blocked, service: desk, path: /watch, secret: !secret DESK}]}
pipelines:
  - id: work
    flow: thing
    stages:
      - id: s
        handlers: [{id: a, step: {value: ""}COMPENSATE}]
      - id: t
        handlers: [{id: d, step: {value: ""}}]
    notify:
      - {id: desk, on: [succeeded, failed, cancelled], service: desk, path: /ends, secret: !secret DESK}
`

// A desk takes notifications.
type desk struct {
	t   *testing.T
	now func() time.Time

	mu   sync.Mutex // guards the following
	told map[string]map[string]bool
}

// ServeHTTP implements [http.Handler].
func (d *desk) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the node has died
	}
	hook := &language.Webhook{ID: "desk", Scheme: "standard", Tolerance: time.Minute}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := webhooks.Verify(hook, r.Header, body, []string{deskSecret}, d.now()); err != nil {
		d.t.Errorf("a notification without a valid signature: %v", err)
	}
	var event struct {
		Type, ID string
		Data     struct {
			Run    string
			Blocks bool
		}
	}
	if err := json.Unmarshal(body, &event); err != nil || r.Header.Get("Webhook-Id") != r.Header.Get("Idempotency-Key") {
		d.t.Errorf("want a CloudEvent whose id is the key of the call, have %v, %s, %v", err, body, r.Header)
	}
	what := fmt.Sprint(r.URL.Path, " ", event.Data.Run, " ", event.Type, " ", event.Data.Blocks)
	if d.told[what] == nil {
		d.told[what] = map[string]bool{}
	}
	d.told[what][event.ID+" "+r.Header.Get("Webhook-Id")] = true
}

const deskSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// TestEndsAreToldWhateverCrashes ends runs in each way, and lets the node die at each checkpoint, those of the deliveries
// included. The service hears of each end, always by one id, with a signature.
func TestEndsAreToldWhateverCrashes(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, db store.Store) {
		d := &desk{t: t, told: map[string]map[string]bool{}}
		server := httptest.NewServer(d)
		t.Cleanup(server.Close)
		for _, end := range []string{"succeeded", "failed", "given up", "undone", "cancelled", "dropped", "orphaned"} {
			eachCrash(func(c crash) int { return notifyAfter(t, db, d, server.URL, end, c) })
		}
	})
}

func notifyAfter(t *testing.T, db store.Store, d *desk, url, end string, crash crash) int {
	t.Helper()
	what := fmt.Sprintf("%s: %s", end, crash)
	var tr trial
	types := append(handlers.All(), enginetest.Scripted("step", func(ctx context.Context, c *engine.Call, _ any) (model.Result, error) {
		return model.Result{}, endAs(ctx, &tr, c, end)
	}))
	flow := strings.Replace(notifyFlow, "COMPENSATE", map[bool]string{true: ", compensate: {step: {value: \"\"}}"}[end == "undone"], 1)
	tr = startTrial(t, trial{
		store: db, types: types, flow: strings.Replace(flow, "URL", url, 1), what: what, crash: crash, secret: deskSecret,
	})
	d.mu.Lock()
	d.now = tr.clock.Now
	d.mu.Unlock()
	if end == "dropped" {
		tr.cancel(t) // before it begins
	}
	tr.drain(t)
	if end == "given up" {
		tr.cancel(t) // after it has failed
		tr.drain(t)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var want []string
	if end == "failed" || end == "given up" {
		want = []string{"/ends " + tr.run + " procaas.run.failed true", "/watch " + tr.run + " procaas.run.blocked true"}
	}
	switch end {
	case "succeeded":
		want = append(want, "/ends "+tr.run+" procaas.run.succeeded false")
	case "failed":
	default:
		want = append(want, "/ends "+tr.run+" procaas.run.cancelled false")
	}
	heard := 0
	for told, ids := range d.told {
		if strings.Contains(told, tr.run) {
			heard++
		}
		if len(ids) != 1 {
			t.Errorf("%s: want %s told by one id, have %v", what, told, ids)
		}
	}
	for _, w := range want {
		if d.told[w] == nil || heard != len(want) {
			t.Errorf("%s: want the desk to hear %q and nothing else, have %v", what, w, d.told)
		}
	}
	runs, _, err := tr.engine.Engine().List(t.Context(), store.RunFilter{Pipeline: "work.desk", Limit: 1000, Live: true})
	for _, r := range runs {
		if r.Status != model.Succeeded {
			t.Errorf("%s: want each delivery done, have %s %s %+v", what, r.Status, r.Error, r.Handlers)
		}
	}
	if err != nil {
		t.Error(err)
	}
	return tr.engine.Saves()
}

// cancel ends the run as it is.
func (tr *trial) cancel(t *testing.T) {
	t.Helper()
	if _, err := tr.engine.Engine().Abandon(t.Context(), tr.run, store.Actor{Name: "ann", Reason: "enough"}); err != nil {
		t.Fatalf("%s: %v", tr.what, err)
	}
}

const parkedFlow = `
services: [{id: desk, url: URL}]
flows:
  - {id: thing, key: !$ event.id, notify: [{id: watch, on: [blocked, succeeded, cancelled], service: desk, path: /watch, secret: !secret DESK}]}
pipelines:
  - {id: work, flow: thing, stages: [{id: s, handlers: [{id: a, step: {value: ""}, on-unknown: park}]}]}
`

// TestParkedRunsTellThatTheyBlock lets the node die at each checkpoint of a run whose call must not be repeated. If the call is in
// flight then, the run waits for an operator and blocks its key, and the service hears of it, by one id.
func TestParkedRunsTellThatTheyBlock(t *testing.T) {
	t.Parallel()
	db := openStore(t, filepath.Join(t.TempDir(), "trial.db"))
	d := &desk{t: t, told: map[string]map[string]bool{}}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	types := append(handlers.All(), enginetest.Scripted("step", func(context.Context, *engine.Call, any) (model.Result, error) {
		return model.Result{}, nil
	}))
	parked := 0
	eachCrash(func(c crash) int {
		tr := startTrial(t, trial{
			store: db, types: types, flow: strings.Replace(parkedFlow, "URL", server.URL, 1), what: c.String(), crash: c, secret: deskSecret,
		})
		d.mu.Lock()
		d.now = tr.clock.Now
		d.mu.Unlock()
		tr.drain(t)
		v, err := tr.engine.Engine().RunByID(t.Context(), tr.run)
		if err != nil {
			t.Fatal(err)
		}
		want := "/watch " + tr.run + " procaas.run.succeeded false"
		if v.Status == model.Parked {
			want = "/watch " + tr.run + " procaas.run.blocked true"
			parked++
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		for told, ids := range d.told {
			if strings.Contains(told, tr.run) && told != want {
				t.Errorf("%s: want nothing but %q told, have %q", c, want, told)
			}
			if len(ids) != 1 {
				t.Errorf("%s: want %s told by one id, have %v", c, told, ids)
			}
		}
		if d.told[want] == nil {
			t.Errorf("%s: %s: want %q told, have %v", c, v.Status, want, d.told)
		}
		d.mu.Unlock()
		if v.Status == model.Parked {
			tr.cancel(t)
			tr.drain(t)
		}
		d.mu.Lock()
		if end := "/watch " + tr.run + " procaas.run.cancelled false"; (d.told[end] != nil) != (v.Status == model.Parked) {
			t.Errorf("%s: %s: want the end of a parked run told, have %v", c, v.Status, d.told)
		}
		return tr.engine.Saves()
	})
	if parked == 0 {
		t.Error("want a crash after which the run waits for an operator")
	}
}
