package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"procaas/engine/api/cli"
	"procaas/engine/api/wire"
	"procaas/engine/store"
)

// rewarded has a handler that works, and one that always fails: its fallback shows when calls were judged.
const rewarded = `
services: [{id: points, url: SERVICE}, {id: broken, url: SERVICE/}]
pipelines:
  - id: order
    shared-state: {points: null, gift: null}
    stages:
      - id: reward
        handlers:
          - id: points
            critical: false
            retry: {attempts: 1}
            fallback: {min-calls: 5, min-success-ratio: 0.9, result: {points: 0}}
            request: {service: points, path: /good}
            result: {points: 1}
  - id: witness
    shared-state: {gift: null}
    stages:
      - id: reward
        handlers:
          - id: gift
            critical: false
            retry: {attempts: 1}
            fallback: {min-calls: 5, min-success-ratio: 0.9, result: {gift: 0}}
            request: {service: broken, path: /bad}
            result: {gift: 1}
`

// The failures of a version on trial do not take a handler of the current version out of the flow. So the canary
// has something to compare, and runs of the current version lose nothing.
func TestCanaryDoesNotTripTheFallbackOfTheCurrentVersion(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/bad") {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(service.Close)
	old := strings.ReplaceAll(rewarded, "SERVICE", service.URL)
	o := operateNode(t, old)
	o.write(strings.Replace(old, "path: /good", "path: /bad", 1))
	o.command(cli.ExitFine, "canary [0-9a-f]+ at 50%", "reload", "--canary", "50%", "--hold", "--ignore", "errors")
	out := func(path string) bool {
		page, err := o.client.Audit(t.Context(), store.AuditFilter{Kind: store.AuditFallback, Name: path, Limit: 1}, "")
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Items) > 0
	}
	sent, seen := 0, 0
	eventually(t, "the witness to be out, and as many calls again", func() bool {
		for _, kind := range []string{"order", "witness"} {
			if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: kind, Key: fmt.Sprint(kind, sent)}); err != nil {
				t.Fatal(err)
			}
		}
		sent++
		if seen == 0 && out("witness/reward/gift") {
			seen = sent
		}
		return seen > 0 && sent > 2*seen
	})
	if out("order/reward/points") {
		t.Error("the calls of the version on trial have taken a handler of the current version out of the flow")
	}
	v, err := o.client.Canary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range v.Compared {
		if c.Name == "order/reward/points" && (c.Kind != "errors" || c.New.Bad < 10 || c.New.Bad != c.New.N || c.Old.Bad > 0 || c.Old.N < 10) {
			t.Errorf("nothing was tried: have %+v", c)
		}
	}
}
