package outbound_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/outbound"
)

type answers func(*http.Request) (*http.Response, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestDeadHostIsNotAskedAgainAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, status, dead := 0, http.StatusOK, errors.New("refused")
		var b outbound.Breakers
		c := b.Guard("test", &http.Client{Transport: answers(func(r *http.Request) (*http.Response, error) {
			if asked++; dead != nil && r.URL.Host == "dead.example" {
				return nil, dead
			}
			return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
		})}, time.Minute)
		get := func(host string) error {
			reply, err := c.Get("http://" + host)
			if err == nil {
				reply.Body.Close()
			}
			return err
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(&b)
		wantOpen := func(want ...float64) {
			t.Helper()
			families, err := registry.Gather()
			if err != nil || len(families) != 1 || len(families[0].GetMetric()) != len(want) {
				t.Fatalf("want %v, have %v %v", want, families, err)
			}
			for i, m := range families[0].GetMetric() { // in the order of hosts
				if have := m.GetGauge().GetValue(); have != want[i] {
					t.Errorf("want %v, have %g for %v", want[i], have, m.GetLabel())
				}
			}
		}
		for range 20 {
			_ = get("dead.example")
		}
		if asked != 5 || !outbound.IsOpen(get("dead.example")) {
			t.Errorf("want five requests, then none, have %d", asked)
		}
		if err := get("live.example"); err != nil {
			t.Errorf("want another host asked, have %v", err)
		}
		wantOpen(1, 0)
		time.Sleep(time.Minute + time.Second)
		asked = 0
		if first, second := get("dead.example"), get("dead.example"); first == nil || second == nil || asked != 1 {
			t.Errorf("want one request that finds out, have %d", asked)
		}
		dead = nil
		time.Sleep(time.Minute + time.Second)
		if err := get("dead.example"); err != nil {
			t.Errorf("want a host that is back asked, have %v", err)
		}
		wantOpen(0, 0)
		b.Guard("other", nil, time.Minute).CloseIdleConnections()
		status = http.StatusNotFound // is an answer
		for range 20 {
			if err := get("live.example"); err != nil {
				t.Fatal(err)
			}
		}
	})
}
