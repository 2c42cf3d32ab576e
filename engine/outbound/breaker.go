package outbound

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"
)

// trips is how many requests in a row must fail before the breaker opens.
const trips = 5

// Breakers protect the engine's own requests from hosts that do not answer, such as receivers of
// alerts and checks of registrations. Services of flows have their own gates. Balancers ask workers
// for their health at every step, because they must see at once that a worker is back. The zero
// value is ready to use, and is a [prometheus.Collector].
type Breakers struct {
	mu sync.Mutex // guards of
	of map[[2]string]*gobreaker.TwoStepCircuitBreaker[any]
}

// IsOpen reports whether a request was not made because earlier ones to the same host have failed.
func IsOpen(err error) bool {
	return errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests)
}

// Guard puts a breaker for each host in front of a client. After five failures in a row, by an
// error or a status of at least 500, no request is made for pause. Then one request tests whether
// the host is back. A nil client is [http.DefaultClient]. caller is a label of the metrics.
func (b *Breakers) Guard(caller string, c *http.Client, pause time.Duration) *http.Client {
	if c == nil {
		c = http.DefaultClient
	}
	guarded := *c
	next := c.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	guarded.Transport = &breaking{b, caller, pause, next}
	return &guarded
}

// A breaking transport makes no requests to hosts that do not answer.
type breaking struct {
	all    *Breakers
	caller string
	pause  time.Duration
	next   http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t *breaking) RoundTrip(r *http.Request) (*http.Response, error) {
	done, err := t.all.breaker(t.caller, r.URL.Host, t.pause).Allow()
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, fmt.Errorf("%s is not asked, since %d requests in a row have failed: %w", r.URL.Host, trips, err)
	}
	reply, err := t.next.RoundTrip(r)
	failure := err
	if err == nil && reply.StatusCode >= http.StatusInternalServerError {
		failure = errors.New(reply.Status)
	}
	done(failure)
	return reply, err
}

// CloseIdleConnections is for [http.Client].
func (t *breaking) CloseIdleConnections() { (&http.Client{Transport: t.next}).CloseIdleConnections() }

func (b *Breakers) breaker(caller, host string, pause time.Duration) *gobreaker.TwoStepCircuitBreaker[any] {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := [2]string{caller, host}
	if b.of[key] == nil {
		if b.of == nil {
			b.of = map[[2]string]*gobreaker.TwoStepCircuitBreaker[any]{}
		}
		b.of[key] = gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
			Name: host, Timeout: pause,
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= trips },
			IsExcluded:  func(err error) bool { return errors.Is(err, context.Canceled) }, // its outcome is unknown
		})
	}
	return b.of[key]
}

var breakerOpen = prometheus.NewDesc("procaas_breaker_open",
	"1 while a host does not answer requests of the engine itself, and single requests try whether it is back; else 0.",
	[]string{"caller", "host"}, nil)

// Describe implements [prometheus.Collector].
func (*Breakers) Describe(out chan<- *prometheus.Desc) { out <- breakerOpen }

// Collect implements [prometheus.Collector].
func (b *Breakers) Collect(out chan<- prometheus.Metric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, breaker := range b.of {
		open := 0.0
		if breaker.State() != gobreaker.StateClosed {
			open = 1
		}
		out <- prometheus.MustNewConstMetric(breakerOpen, prometheus.GaugeValue, open, key[0], key[1])
	}
}
