package api_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/api"
	"procaas/engine/credentials"
	"procaas/engine/enginetest"
	"procaas/engine/store"
	"procaas/engine/triggers"
	"procaas/handlers"
)

const ledger = `
pipelines:
  - {id: close-ledger, stages: [{id: a, handlers: [{id: b, wait: {for: 1ms}}]}]}
triggers:
  - {id: nightly, cron: "30 4 * * *", time-zone: Europe/Paris, event: close-ledger, overlap: skip}
`

func TestConsoleSteersTriggers(t *testing.T) {
	t.Parallel()
	n, c := newNode(t, func(o *engine.Options) { o.Bundle = enginetest.Load(t, ledger, handlers.All()...) }), browser(t)
	act := func(want int, form url.Values) (to, body string) {
		t.Helper()
		code, to, body := do(t, c, http.MethodPost, n.url+"/console/triggers/nightly", form)
		if code != want {
			t.Fatalf("%v: want %d, have %d\n%s", form, want, code, body)
		}
		return to, body
	}
	page := func(want ...string) {
		t.Helper()
		code, _, body := do(t, c, http.MethodGet, n.url+"/console/triggers", nil)
		for _, w := range want {
			if code != http.StatusOK || !strings.Contains(body, w) {
				t.Errorf("want %q, have %d\n%s", w, code, body)
			}
		}
		if next := strings.Count(body, "<li>2"); next != 10 {
			t.Errorf("want ten due times, have %d\n%s", next, body)
		}
	}
	is := func(state string) triggers.TriggerView {
		t.Helper()
		all, err := n.Triggers(t.Context(), 1)
		if err != nil || len(all) != 1 || all[0].State != state {
			t.Fatalf("want it %s, have %+v, %v", state, all, err)
		}
		return all[0]
	}
	page("nightly", "Europe/Paris", "active", `href="/console/triggers"`, "never")

	act(http.StatusSeeOther, url.Values{"do": {"pause"}, "for": {"2h"}, "reason": {"moving"}})
	if v := is(triggers.StatePaused); v.Pause.Reason != "moving" || v.Pause.Until == nil || time.Until(*v.Pause.Until) > 2*time.Hour {
		t.Errorf("want a pause of two hours, have %+v", v.Pause)
	}
	page("paused", "Paused by", "moving", "Resume")
	act(http.StatusBadRequest, url.Values{"do": {"pause"}, "for": {"soon"}})
	act(http.StatusBadRequest, url.Values{"do": {"stop"}})
	act(http.StatusSeeOther, url.Values{"do": {"resume"}})
	is(triggers.StateActive)

	// A form that is sent twice fires once.
	first, _ := act(http.StatusSeeOther, url.Values{"do": {"run"}, "id": {"form-1"}})
	again, _ := act(http.StatusSeeOther, url.Values{"do": {"run"}, "id": {"form-1"}})
	if !strings.HasPrefix(first, "/console/runs/") || again != first {
		t.Errorf("want the same run, have %s and %s", first, again)
	}
	n.until(t, "the run has ended", func() bool { return is(triggers.StateActive).Last.Status == "succeeded" })
	page(", by hand", "succeeded")

	window := url.Values{"do": {"backfill"}, "from": {"2026-03-28T00:00:00Z"}, "to": {"2026-03-31T00:00:00Z"}, "reason": {"late"}}
	_, body := act(http.StatusOK, window)
	if !strings.Contains(body, "<b>3</b> of the first 3 due times would fire") || !strings.Contains(body, "2026-03-30 04:30:00 CEST") {
		t.Errorf("want a list before it fires, have\n%s", body)
	}
	window.Set("confirm", "yes")
	if _, body = act(http.StatusConflict, window); !strings.Contains(body, "what has run would run again") {
		t.Errorf("want it refused, have\n%s", body)
	}
	window.Set("forgotten", "yes")
	if _, body = act(http.StatusOK, window); !strings.Contains(body, "<b>3</b> fired, and 0 already ran.") {
		t.Errorf("want three fired, have\n%s", body)
	}
	if _, body = act(http.StatusOK, window); !strings.Contains(body, "<b>0</b> fired, and 3 already ran.") {
		t.Errorf("want nothing fired again, have\n%s", body)
	}
	act(http.StatusBadRequest, url.Values{"do": {"backfill"}, "from": {"yesterday"}})
	list, err := n.Audit(t.Context(), store.AuditFilter{Kind: store.AuditTrigger, Limit: 10}, "")
	if err != nil || len(list.Items) != 3 {
		t.Errorf("want the firing and the two backfills in the audit, have %+v, %v", list, err)
	}
}

// A reader sees no buttons, and an operator of another pipeline neither sees nor steers the trigger.
func TestConsoleShowsTriggersByGrant(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	f.known = map[string]credentials.Grant{
		"reader": {Name: "reader", Role: credentials.RoleViewer},
		"owner":  {Name: "owner", Role: credentials.RoleOperator, Paths: []string{"new-order-created"}},
		"other":  {Name: "other", Role: credentials.RoleOperator, Paths: []string{"mail"}},
	}
	h := api.New(api.Options{Engine: portsOf(f), Token: "correct-horse-battery-staple"})
	send := func(who, method, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Authorization", "Bearer "+who)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for who, want := range map[string]struct{ sees, steers bool }{"reader": {true, false}, "owner": {true, true}, "other": {false, false}} {
		page := send(who, http.MethodGet, "/console/triggers").Body.String()
		if sees := strings.Contains(page, `id="nightly"`); sees != want.sees || strings.Contains(page, "Fire now") != want.steers {
			t.Errorf("%s: want to see it %v and steer it %v, have\n%s", who, want.sees, want.steers, page)
		}
		code := send(who, http.MethodPost, "/console/triggers/nightly?do=run&id=x").Code
		if (code == http.StatusSeeOther) != want.steers {
			t.Errorf("%s: firing it answers %d", who, code)
		}
	}
}
