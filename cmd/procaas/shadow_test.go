package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"procaas/engine/api/wire"
	"procaas/engine/model"
)

// pricedShop asks for a price, and charges it.
const pricedShop = `
services: [{id: till, url: SERVICE}, {id: risk, url: SERVICE}]
pipelines:
  - id: sale
    shared-state: {price: null, receipt: null}
    stages:
      - id: ask
        handlers:
          - id: price
            request: {service: till, path: /prices, query: {list: "1"}}
            result: {price: !$ sources.price.response.sum}
      - id: pay
        handlers:
          - id: charge
            request: {service: till, path: /charges, body: {sum: !$ shared-state.price}}
            result: {receipt: !$ sources.charge.response.sum}
`

// A version in the shadow makes safe calls, and no others. Nodes count what differs, and the runs of the server do not notice.
// The server records what it needs, without --record.
func TestShadowMakesOnlySafeCalls(t *testing.T) {
	t.Setenv("PROCAAS_SECRET_TILL", "s3cret-of-the-till")
	var mu sync.Mutex
	real, shadow := map[string]int{}, map[string]int{}
	keys := map[string]bool{}
	till := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		key := r.Header.Get("Idempotency-Key")
		if keys[key] && key != "" {
			t.Errorf("%s has the idempotency key of another call", r.URL)
		}
		keys[key] = true
		if r.Header.Get("X-Procaas-Shadow") == "" {
			real[r.URL.Path]++
		} else {
			shadow[r.URL.Path]++
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"sum": ` + strings.TrimPrefix(r.URL.RawQuery, "list=") + `}`))
	}))
	t.Cleanup(till.Close)
	old := strings.NewReplacer("SERVICE", till.URL, "path: /charges,", `path: /charges, query: {list: "3"},`).Replace(pricedShop)
	o := operateNode(t, old)
	// beside tries a version in the shadow of 4 runs, and drops it.
	beside := func(want string, replaced ...string) {
		t.Helper()
		o.write(strings.NewReplacer(replaced...).Replace(old))
		o.command(0, "shadow [0-9a-f]+ of 100%", "reload", "--shadow", "100%", "--reason", "cheaper")
		for range 4 {
			o.command(0, `"succeeded"`, "submit", "--type", "sale", "--key", "k", "--wait=1m")
		}
		eventually(t, "4 replays", func() bool {
			v, err := o.client.Canary(t.Context())
			return err == nil && v.Shadow.Total().Same+v.Shadow.Total().Different == 4
		})
		o.command(0, want, "canary")
		versions, err := o.client.Versions(t.Context(), 10)
		if v := versions[1]; err != nil || v.State != "shadow 100%" || v.Runs != 0 || v.Reason != "cheaper" || v.Shadow.Pipelines[0].Pipeline != "sale" {
			t.Errorf("have %+v, %v", versions, err)
		}
		o.command(0, "", "rollback")
		o.command(0, "(?s)rolled back, 100% of the ended runs.*why", "canary")
	}
	calls := func(what string, want map[string]int) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if real["/prices"] != 4 || real["/charges"] != 4 || len(real) != 2 {
			t.Errorf("%s: want the calls of the 4 runs alone, have %v", what, real)
		}
		for _, path := range []string{"/prices", "/charges", "/checks"} {
			if shadow[path] != want[path] {
				t.Errorf("%s: want %v in the shadow, have %v", what, want, shadow)
			}
		}
		clear(real)
		clear(shadow)
	}

	beside(`sale +4 +0 +0`, "id: sale", "id: sale\n    weight: 2")
	calls("the same files", nil)

	beside(`(?s)sale +0 +4 +0.*4 runs: sale/ask/price sends another query.list.*was  "1".*now  "2".*such as .*, .*, .*4 calls for real`, `list: "1"`, `list: "2"`)
	calls("a GET that asks for something else", map[string]int{"/prices": 4})

	check := []string{"      - id: pay\n", `      - id: check
        handlers:
          - id: check
            request: {service: risk, path: /checks, query: {list: "9"}, body: {sum: !$ shared-state.price}}
            result: {price: !$ sources.check.response.sum}
      - id: pay
`}
	beside(`4 runs: sale/check/check makes a call that was not recorded`, check...)
	calls("a new POST", nil)

	beside(`(?s)4 runs: sale/check/check is called, too.*4 calls for real`, append(check, "{id: risk,", "{id: risk, shadow: true,")...)
	calls("a new POST to a service that allows it", map[string]int{"/checks": 4})

	beside(`4 runs: sale/ask/price sends another`, `query: {list: "1"}`, `query: {list: "2"}, headers: {authorization: !secret TILL}`)
	calls("a GET with a secret", nil)
	o.wait(model.Succeeded, 20)
}

// A shadow that cannot begin says why, and what to do. Nothing has changed then.
func TestShadowIsRefused(t *testing.T) {
	t.Parallel()
	old := strings.ReplaceAll(pricedShop, "SERVICE", "http://127.0.0.1:1")
	o := operateNode(t, old)
	o.command(2, `--shadow "101%": want a percentage above 0 and up to 100`, "reload", "--shadow", "101%")
	o.command(2, `--shadow "0": want a percentage above 0`, "reload", "--shadow", "0")
	o.command(2, "want --canary or --shadow, have both", "reload", "--shadow", "5%", "--canary", "5%")
	o.command(2, "belong to --canary", "reload", "--shadow", "5%", "--hold")
	o.command(1, "there is nothing to try: these pipelines are current", "reload", "--shadow", "5%")
	o.command(1, "no canary runs, and no version is in the shadow; procaas release versions lists the versions", "promote")
	if _, err := o.client.Reload(t.Context(), wire.Reload{Shadow: 5, Canary: 5}); err == nil || !strings.Contains(err.Error(), "want a canary or a shadow, have both") {
		t.Errorf("have %v", err)
	}
	o.write(strings.ReplaceAll(old, "id: sale", "id: other"))
	o.command(1, "a version on trial must serve all events of the current version, and no pipeline of it serves sale", "reload", "--shadow", "5%")

	o.write(strings.ReplaceAll(old, `list: "1"`, `list: "2"`))
	o.command(0, "canary", "reload", "--canary", "5%", "--hold")
	o.command(1, "a canary of version [0-9a-f]+ runs already, at 5 %; promote it or roll it back first", "reload", "--shadow", "5%")
	o.command(0, "undo: procaas release reload --canary 5%", "rollback")
	o.command(0, "shadow", "reload", "--shadow", "5%")
	for _, also := range []string{"--canary", "--shadow"} {
		o.command(1, "version [0-9a-f]+ is in the shadow of 5 % of the runs already; promote it or roll it back first", "reload", also, "5%")
	}
	o.command(0, "canary .* running at 20% of keys", "promote", "20%", "--hold")
	o.command(0, "undo: procaas release reload --canary 5%", "rollback")
	o.command(0, "shadow", "reload", "--shadow", "5%")
	o.command(0, "undo: procaas release reload --shadow 5%", "rollback")
	versions, err := o.client.Versions(t.Context(), 10)
	if err != nil || versions[0].State != "current" || versions[1].State != "rolled back" {
		t.Errorf("have %+v, %v", versions, err)
	}
}
