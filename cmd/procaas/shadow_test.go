package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"procaas/cmd/procaas/internal/serve"
	"procaas/engine/api/client"
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

// A version in the shadow makes safe calls, and no others. What differs is told, and the server and its runs do not notice.
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
	o := &operated{t: t, dir: t.TempDir()}
	yaml := strings.ReplaceAll(pricedShop, "SERVICE", till.URL)
	yaml = strings.ReplaceAll(yaml, "path: /charges,", `path: /charges, query: {list: "3"},`)
	o.write(yaml)
	o.server = startNode(t, "sqlite:"+filepath.Join(t.TempDir(), "o.db"), o.dir, func(f *serve.Flags) { f.Record = "100%" })
	o.client = client.New(o.server, "")
	for range 4 {
		o.command(0, `"succeeded"`, "submit", "--type", "sale", "--key", "k", "--wait=1m")
	}
	o.wait(model.Succeeded, 4)
	beside := func(code int, want string, replaced ...string) {
		t.Helper()
		next := &operated{t: t, dir: t.TempDir(), server: o.server}
		next.write(strings.NewReplacer(replaced...).Replace(yaml))
		next.command(code, want, "shadow", next.dir, "--since", "1h", "--runs", "4", "--for", "1m")
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
		clear(shadow)
	}

	beside(0, `4 runs replayed in .*: 4 as before`)
	calls("the same files", nil)

	beside(1, `(?s)price sends another query.list.*then sale/pay/charge sends another body.sum, in 4 runs: 1 → 2.*4 calls for real.*4 different`, `list: "1"`, `list: "2"`)
	calls("a GET that asks for something else", map[string]int{"/prices": 4})

	check := []string{"      - id: pay\n", `      - id: check
        handlers:
          - id: check
            request: {service: risk, path: /checks, query: {list: "9"}, body: {sum: !$ shared-state.price}}
            result: {price: !$ sources.check.response.sum}
      - id: pay
`}
	beside(1, `(?s)check makes a call that was not recorded.*4 different`, check...)
	calls("a new POST", nil)

	beside(1, `(?s)check is called, too.*then sale/pay/charge sends another body.sum.*4 calls for real.*4 different`,
		append(check, "{id: risk,", "{id: risk, shadow: true,")...)
	calls("a new POST to a service that allows it", map[string]int{"/checks": 4})

	beside(1, `(?s)price sends another.*4 different`, `query: {list: "1"}`, `query: {list: "2"}, headers: {authorization: !secret TILL}`)
	calls("a GET with a secret", nil)
	o.wait(model.Succeeded, 4)
}
