package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/clock"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A traffic sends orders to the API like an application, and counts their outcomes.
type traffic struct {
	client *client.Client
	orders int     // 0: no end
	rate   float64 // per second; 0: as fast as they are accepted

	mu       sync.Mutex // guards the following fields
	accepted int        // orders with a receipt
	refused  int        // orders that will never be accepted
	incident string     // current incident; empty for none
	told     []string   // news that the live line has not yet printed
}

func newTraffic(c *client.Client, orders int, rate float64) *traffic {
	return &traffic{client: c, orders: orders, rate: rate}
}

// run sends orders until all are accepted or ctx ends. At most 32 are in flight. If the server is slower, the
// rate falls.
func (t *traffic) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	var pace *time.Ticker
	if t.rate > 0 {
		pace = time.NewTicker(time.Duration(float64(time.Second) / t.rate))
		defer pace.Stop()
	}
	for n := 1; t.orders == 0 || n <= t.orders; n++ {
		if pace != nil {
			select {
			case <-ctx.Done():
				return g.Wait()
			case <-pace.C:
			}
		}
		if ctx.Err() != nil {
			break
		}
		order := NewOrder(n)
		g.Go(func() error { return t.send(ctx, order) })
	}
	return g.Wait()
}

// send submits one order. It retries with the same event id until it has an answer.
func (t *traffic) send(ctx context.Context, order wire.Event) error {
	for attempt := 1; ; attempt++ {
		_, err := t.client.SubmitEvent(ctx, order)
		var problem *problem.Problem
		switch {
		case err == nil:
			t.count(&t.accepted)
			return nil
		case ctx.Err() != nil:
			return nil
		// A deliberate refusal. A 5xx status or a missing answer may be temporary.
		case errors.As(err, &problem) && problem.Status < 500:
			t.count(&t.refused)
			return fmt.Errorf("order refused: %w", err)
		case attempt == 20:
			return fmt.Errorf("order not accepted after %d attempts: %w", attempt, err)
		}
		if !clock.Pause(ctx, 100*time.Millisecond) {
			return nil
		}
	}
}

// count increments one of the counters.
func (t *traffic) count(what *int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*what++
}

// setIncident records which service is broken, for the live line.
func (t *traffic) setIncident(name string, on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.incident = ""
	if on {
		t.incident = name
	}
}

// tell adds a line to the news.
func (t *traffic) tell(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told = append(t.told, fmt.Sprintf(format, args...))
}

// takeNews returns the news since its last call.
func (t *traffic) takeNews() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	told := t.told
	t.told = nil
	return told
}

// NewOrder returns the event of the n-th order, which is always the same. So the demo is repeatable, and so is
// an event without an answer.
func NewOrder(n int) wire.Event {
	// Econom is three times as frequent as each of the others.
	r := rand.New(rand.NewPCG(uint64(n), 17))
	tariffs := []string{"econom", "econom", "econom", "business", "comfort"}
	return wire.Event{
		Type:   "new-order-created",
		ID:     fmt.Sprintf("order-%06d", n),
		Source: "demo",
		Payload: map[string]any{
			"order-id":      fmt.Sprintf("o-%06d", n),
			"user-id":       fmt.Sprintf("u-%04d", r.IntN(5000)),
			"tariff":        tariffs[r.IntN(len(tariffs))],
			"city":          "moscow",
			"is-authorized": r.IntN(10) > 0,
		},
	}
}

// settle waits until every accepted order has ended, and adds up their outcomes. It runs after the traffic.
func (t *traffic) settle(ctx context.Context) (summary, error) {
	for {
		s, open, err := t.tally(ctx)
		if err != nil {
			return s, err
		}
		if open == 0 {
			return s, s.countFallbacks(ctx, t.client)
		}
		if !clock.Pause(ctx, 50*time.Millisecond) {
			return s, nil
		}
	}
}

// tally reads all runs page by page. It returns how many have not ended. Runs that end between two pages do not
// matter, since only the last call counts, in which all have ended.
func (t *traffic) tally(ctx context.Context) (s summary, open int, err error) {
	s.Orders = t.accepted
	var latencies []time.Duration
	filter := store.RunFilter{Limit: 500}
	for {
		page, err := t.client.Runs(ctx, filter)
		if err != nil {
			return s, open, err
		}
		for _, v := range page.Items {
			if !v.Status.Ended() {
				open++
				continue
			}
			s.add(v)
			if v.Finished != nil {
				latencies = append(latencies, v.Finished.Sub(v.Accepted))
			}
		}
		if page.Next == nil {
			break
		}
		filter.Cursor = *page.Next
	}
	s.P50, s.P99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
	return s, open, nil
}

// A summary is what the demo prints at its end.
type summary struct {
	Orders int `json:"orders"`
	Runs   struct {
		Succeeded int `json:"succeeded"`
		Failed    int `json:"failed"`
	} `json:"runs"`
	Handlers struct {
		Run     int `json:"run"`
		Skipped int `json:"skipped"` // because of enabled, a fallback, or an error of an optional handler
	} `json:"handlers"`
	Fallbacks struct {
		On      int `json:"on"`  // times that a fallback took a handler out
		Off     int `json:"off"` // times that it came back
		Skipped int `json:"skipped"`
	} `json:"fallbacks"`
	P50 float64 `json:"p50_ms"` // from acceptance to the end of the run
	P99 float64 `json:"p99_ms"`
}

// add adds an ended run and the outcomes of its handlers.
func (s *summary) add(v checkpoint.RunView) {
	if v.Status == model.Succeeded {
		s.Runs.Succeeded++
	} else {
		s.Runs.Failed++
	}
	for _, h := range v.Handlers {
		if h.RepeatsStage() {
			continue // its handlers follow
		}
		if h.Outcome == "succeeded" {
			s.Handlers.Run++
		} else {
			s.Handlers.Skipped++
		}
		if strings.HasPrefix(h.Reason, "fallback ") {
			s.Fallbacks.Skipped++
		}
	}
}

// countFallbacks counts in the audit how often fallbacks took handlers out.
func (s *summary) countFallbacks(ctx context.Context, c *client.Client) error {
	for cursor := ""; ; {
		page, err := c.Audit(ctx, store.AuditFilter{Kind: store.AuditFallback, Limit: 500}, cursor)
		if err != nil {
			return err
		}
		for _, a := range page.Items {
			if a.After != nil {
				s.Fallbacks.On++
			} else {
				s.Fallbacks.Off++
			}
		}
		if page.Next == nil {
			return nil
		}
		cursor = *page.Next
	}
}

// complete reports whether every accepted order has a succeeded run.
func (s summary) complete() bool {
	return s.Runs.Succeeded == s.Orders && s.Runs.Failed == 0
}

// print prints the summary.
func (s summary) print(to cli.Streams, format string) error {
	if format == "json" {
		return to.PrintJSON(s)
	}
	return to.Printf(`orders accepted    %6d
runs succeeded     %6d
runs failed        %6d
handlers run       %6d
handlers skipped   %6d
  by fallbacks     %6d
fallbacks on       %6d
fallbacks off      %6d
latency p50        %6.1f ms
latency p99        %6.1f ms
`, s.Orders, s.Runs.Succeeded, s.Runs.Failed, s.Handlers.Run, s.Handlers.Skipped,
		s.Fallbacks.Skipped, s.Fallbacks.On, s.Fallbacks.Off, s.P50, s.P99)
}

// percentile returns the q-quantile in milliseconds, or 0 without data. It sorts ds.
func percentile(ds []time.Duration, q float64) float64 {
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	at := min(int(q*float64(len(ds))), len(ds)-1)
	return float64(ds[at].Microseconds()) / 1000
}

// line summarizes the state in one line.
func (t *traffic) line(metrics prometheus.Gatherer, up time.Duration) (string, error) {
	runs, err := sums(metrics, "procaas_runs_total", "status")
	if err != nil {
		return "", err
	}
	calls, err := sums(metrics, "procaas_handler_calls_total", "outcome")
	if err != nil {
		return "", err
	}
	given, err := sums(metrics, "procaas_handler_given_up_total", "pipeline")
	if err != nil {
		return "", err
	}
	skipped := calls["skipped"]
	for _, n := range given {
		skipped += n
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	line := fmt.Sprintf("%s  orders %d  runs succeeded %.0f failed %.0f  handlers run %.0f skipped %.0f",
		up.Round(time.Second), t.accepted, runs["succeeded"], runs["failed"], calls["succeeded"], skipped)
	if t.incident != "" {
		line += "  incident: " + t.incident
	}
	return line, nil
}

// sums adds up a counter by one of its labels.
func sums(metrics prometheus.Gatherer, name, label string) (map[string]float64, error) {
	families, err := metrics.Gather()
	if err != nil {
		return nil, err
	}
	sum := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == label {
					sum[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum, nil
}
