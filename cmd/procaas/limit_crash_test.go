package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"procaas/engine/api/wire"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
)

const limitedByValue = `
services: [{id: partner, url: URL}]
pipelines:
  - id: paid
    stages:
      - id: s
        handlers:
          - id: tell
            request: {service: partner, path: /orders, body: !$ event.payload.customer}
            rate-limit: {rate: 2/s, burst: 1, per: !$ event.payload.customer}
`

// TestLimitByValueSurvivesKill9 kills one of two nodes while the runs of some customers wait for their turns. No customer has
// more calls than its limit allows, in any time, and no run is lost.
func TestLimitByValueSurvivesKill9(t *testing.T) {
	t.Parallel()
	const customers, runs, perSecond, burst = 4, 10, 2, 1
	lag := enginetest.MeasureLag(t)
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	defer cancel()
	calls := map[string][]time.Time{}
	var mu sync.Mutex
	called := make(chan struct{}, 1000)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var customer string
		if json.NewDecoder(r.Body).Decode(&customer) != nil {
			return
		}
		mu.Lock()
		calls[customer] = append(calls[customer], time.Now())
		mu.Unlock()
		called <- struct{}{}
	}))
	defer service.Close()
	db := enginetest.MigratedPostgres(t)
	first := newCrashing(t, db, limitedByValue, service.URL)
	dying := first.start(ctx)
	second := newCrashing(t, db, limitedByValue, service.URL)
	other := second.start(ctx)
	var ids []string
	for n := range customers * runs {
		to := []*crashing{first, second}[n/customers%2]
		receipt, err := to.client.SubmitEvent(ctx, wire.Event{
			Type: "paid", ID: strconv.Itoa(n), Source: "test", Payload: map[string]any{"customer": "c" + strconv.Itoa(n%customers)},
		})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, receipt.Run)
	}
	for range 2 * customers {
		select {
		case <-called:
		case <-ctx.Done():
			t.Fatal("the calls do not come")
		}
	}
	dying.kill()
	again := first.start(ctx)
	for _, id := range ids {
		second.await(ctx, id, model.Succeeded, "")
	}
	mu.Lock()
	defer mu.Unlock()
	for customer, at := range calls {
		if len(at) < runs {
			t.Errorf("customer %s: want %d calls, have %d", customer, runs, len(at))
		}
		for i := range at {
			for j := i; j < len(at); j++ {
				// A call starts within a second of its turn, and is seen here when this machine gets to it.
				window := at[j].Sub(at[i])
				if n, most := j-i+1, burst+int(perSecond*(window+lag.Allow(time.Second)).Seconds()); n > most {
					t.Fatalf("customer %s: want at most %d calls in %s, have %d", customer, most, window, n)
				}
			}
		}
	}
	other.terminate()
	again.terminate()
}
