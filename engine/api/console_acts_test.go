package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"procaas/engine/api"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/credentials"
	"procaas/engine/guard"
	"procaas/engine/model"
)

// An operator who switches off at night does not lift the limit that somebody has set by day.
func TestConsoleChangesOneThingOfAControl(t *testing.T) {
	t.Parallel()
	n, c := newNode(t), browser(t)
	const notify = "new-order-created/fetch-order"
	if _, err := n.SetControl(t.Context(), notify, wire.ControlChange{RateLimit: "7/s", Over: "skip", Reason: "by day"}, -1); err != nil {
		t.Fatal(err)
	}
	act := func(want int, form url.Values) string {
		t.Helper()
		form.Set("confirm", "yes")
		code, _, body := do(t, c, http.MethodPost, n.url+"/console/controls/"+notify, form)
		if code != want {
			t.Fatalf("%v: want %d, have %d\n%s", form, want, code, body)
		}
		return body
	}
	is := func(enabled bool, mode, rate string) {
		t.Helper()
		list, err := n.Controls(t.Context())
		if err != nil || len(list) != 1 || list[0].Enabled != enabled || list[0].Mode != mode || list[0].RateLimit != rate ||
			list[0].Over != "skip" && rate == "7/s" {
			t.Fatalf("want enabled %v, mode %q, limit %s, have %+v, %v", enabled, mode, rate, list, err)
		}
	}
	act(http.StatusSeeOther, url.Values{"do": {"hold"}, "for": {"30m"}})
	is(false, guard.ModeHold, "7/s")
	act(http.StatusSeeOther, url.Values{"do": {"limit"}, "rate": {"3/s"}, "for": {"forever"}})
	is(false, guard.ModeHold, "3/s")
	act(http.StatusSeeOther, url.Values{"do": {"deadline"}, "time": {"300ms"}, "for": {"1h"}, "force": {"yes"}})
	is(false, guard.ModeHold, "3/s")
	if list, _ := n.Controls(t.Context()); list[0].Deadline != "300ms" || list[0].DeadlineUntil == nil {
		t.Errorf("want a deadline that ends beside the others, have %+v", list[0])
	}
	act(http.StatusBadRequest, url.Values{"do": {"deadline"}, "time": {"300ms"}, "for": {"forever"}})
	act(http.StatusSeeOther, url.Values{"do": {"hold"}, "for": {"30m"}})
	if list, _ := n.Controls(t.Context()); list[0].Deadline != "300ms" {
		t.Errorf("want the deadline kept, have %+v", list[0])
	}
	act(http.StatusSeeOther, url.Values{"do": {"on"}})
	if list, err := n.Controls(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("lifted, want nothing set, have %v, %v", list, err)
	}
	if body := act(http.StatusConflict, url.Values{"do": {"on"}}); !strings.Contains(body, "Nothing is set at "+notify) {
		t.Errorf("lifted twice, have\n%s", body)
	}
}

// Lifting puts handlers back that have gone out by themselves, also where nothing is set.
func TestConsoleLiftEndsFallbacks(t *testing.T) {
	t.Parallel()
	at := "http://" + serve(t, api.New(api.Options{Engine: portsOf(newFake(taxi(t)))}))
	if code, _, body := do(t, browser(t), http.MethodPost, at+"/console/controls/new-order-created/notify",
		url.Values{"do": {"on"}}); code != http.StatusSeeOther {
		t.Errorf("have %d\n%s", code, body)
	}
}

// An operator of one handler retries the runs that failed in it, and cancels none.
func TestConsoleRetriesForAnOperatorOfTheHandler(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	f.known = map[string]credentials.Grant{"on-call-of-orders": {Name: "ann", Role: credentials.RoleOperator, Paths: []string{getOrder}}}
	h := api.New(api.Options{Engine: portsOf(f), Token: "correct-horse-battery-staple", Open: []string{rest.OpenEvents}})
	post(h, `{"type": "new-order-created", "id": "e-1", "key": "k"}`)
	f.end("run-1", model.Failed)
	for act, want := range map[string]int{
		"/run-1?do=cancel": http.StatusForbidden, "/run-1?do=retry": http.StatusSeeOther,
		"/run-1?do=rerun": http.StatusForbidden, "?handler=" + getOrder + "&do=cancel": http.StatusForbidden, "?handler=" + getOrder +
			"&do=retry": http.StatusOK,
	} {
		r := httptest.NewRequest(http.MethodPost, "/console/runs"+act, nil)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Authorization", "Bearer on-call-of-orders")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: want %d, have %d\n%s", act, want, w.Code, w.Body)
		}
	}
}

func TestConsoleRunsAgain(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	at := "http://" + serve(t, api.New(api.Options{Engine: portsOf(f)}))
	b := browser(t)
	run := at + "/console/runs/run-1"
	post(api.New(api.Options{Engine: portsOf(f)}), `{"type": "new-order-created", "key": "k"}`)
	if code, _, body := do(t, b, http.MethodPost, run, url.Values{"do": {"rerun"}}); code != http.StatusConflict ||
		!strings.Contains(body, "it has not ended") {
		t.Errorf("of a run that has not ended: have %d\n%s", code, body)
	}
	f.end("run-1", model.Succeeded)
	if _, _, body := do(t, b, http.MethodGet, run, nil); !strings.Contains(body, `<option>fetch-order`) ||
		!strings.Contains(body, "Run again") {
		t.Errorf("want a form with the stages, have\n%s", body)
	}
	code, to, body := do(t, b, http.MethodPost, run, url.Values{"do": {"rerun"}, "from": {"notify"}, "reason": {"sent to nobody"}})
	if code != http.StatusSeeOther || to != "/console/runs/run-2" {
		t.Errorf("have %d, %s\n%s", code, to, body)
	}
}

func TestConsoleRetriesManyInParts(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	h := api.New(api.Options{Engine: portsOf(f)})
	const runs = 501
	for i := range runs {
		post(h, fmt.Sprintf(`{"type": "new-order-created", "id": "e-%d", "key": "k"}`, i))
		f.end(fmt.Sprintf("run-%d", i+1), model.Failed)
	}
	at := "http://" + serve(t, h)
	form := url.Values{"pipeline": {"new-order-created"}, "reason": {"push <is> back"}, "confirm": {"yes"}, "do": {"retry"}}
	_, _, body := do(t, browser(t), http.MethodPost, at+"/console/runs", form)
	for _, want := range []string{
		"500 runs resumed", "Retry up to 500 more", `name="cursor" value="run-500"`,
		`name="reason" value="push &lt;is&gt; back"`, `name="pipeline" value="new-order-created"`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("want %q, have\n%s", want, body)
		}
	}
	form.Set("cursor", "run-500")
	if _, _, body := do(t, browser(t), http.MethodPost, at+"/console/runs", form); !strings.Contains(body, "1 runs resumed") ||
		strings.Contains(body, "There are more") {
		t.Errorf("the rest: have\n%s", body)
	}
}

// Nobody cancels all runs by saying nothing, and everybody sees how many it would be.
func TestConsoleCancelsWhatASearchFinds(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	h := api.New(api.Options{Engine: portsOf(f)})
	for i := range 3 {
		post(h, fmt.Sprintf(`{"type": "new-order-created", "id": "e-%d", "key": "k"}`, i))
	}
	f.end("run-1", model.Succeeded)
	at := "http://" + serve(t, h)
	form := url.Values{"do": {"cancel"}}
	send := func(want int, words ...string) {
		t.Helper()
		status, _, body := do(t, browser(t), http.MethodPost, at+"/console/runs", form)
		for _, w := range words {
			if status != want || !strings.Contains(body, w) {
				t.Errorf("want %d and %q, have %d\n%s", want, w, status, body)
			}
		}
	}
	send(http.StatusBadRequest, "Search first")
	form.Set("pipeline", "new-order-created")
	send(http.StatusOK, "<b>2</b> runs have not ended", "Cancel all 2", `name="do" value="cancel"`)
	form.Set("confirm", "yes")
	form.Set("reason", "wrong prices")
	send(http.StatusOK, "2 runs were cancelled")
	delete(form, "confirm")
	send(http.StatusOK, "<b>0</b> runs")
	form.Set("do", "delete")
	send(http.StatusBadRequest, "does not say what to do")
}

func TestConsoleSaysWhatThereIsNot(t *testing.T) {
	t.Parallel()
	h := api.New(api.Options{Engine: portsOf(newFake(taxi(t)))})
	for path, want := range map[string]string{
		"/console/keys/taxi-ordr/k":    "There is no flow &#34;taxi-ordr&#34;. Did you mean taxi-order?",
		"/console/runs/nobody":         "There is no such run",
		"/console/runs?cursor=nothing": "The list has no such page",
	} {
		if w := get(h, path); w.Code/100 != 4 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: want %q, have %d\n%s", path, want, w.Code, w.Body)
		}
	}
}
