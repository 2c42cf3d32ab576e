package alert

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/clock"
	"procaas/engine/outbound"
)

// These are the kinds of receivers.
const (
	kindAlertmanager = "alertmanager"
	kindWebhook      = "webhook"
)

const (
	maxItems   = 4096             // alerts that a sender keeps, at most
	maxBatch   = 64               // alerts in one request, at most
	mostAfter  = 5 * time.Minute  // that a receiver may ask to wait
	postTime   = 10 * time.Second // timeout of one request
	lastTry    = 3 * time.Second  // timeout of the last request
	againPause = time.Second      // pause before a retry
	awayPause  = time.Minute      // pause between requests to a receiver that does not answer
	resend     = time.Minute      // interval of resending firing alerts to Alertmanager
	lapseAfter = 4 * resend       // when Alertmanager expires them
)

// counts are the metrics of all senders.
type counts struct {
	sent, failed *prometheus.CounterVec
	dropped      prometheus.Counter
}

func newCounts(r prometheus.Registerer) *counts {
	c := &counts{
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "procaas_alerts_sent_total",
			Help: "Alerts that a receiver accepted, including repeated and resolved ones.",
		}, []string{"receiver"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "procaas_alert_requests_failed_total",
			Help: "Failed requests to receivers of alerts. The node retries them unless the receiver refuses them.",
		}, []string{"receiver"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "procaas_alerts_dropped_total",
			Help: "Alerts and notices that were given up: too many at once, or refused by the receiver.",
		}),
	}
	for _, kind := range []string{kindAlertmanager, kindWebhook} {
		c.sent.WithLabelValues(kind)
		c.failed.WithLabelValues(kind)
	}
	if r != nil {
		r.MustRegister(c.sent, c.failed, c.dropped)
	}
	return c
}

// A sender sends to one receiver. It keeps the newest state of each alert, so the backlog for an
// unreachable receiver is bounded.
type sender struct {
	kind   string
	url    *url.URL
	o      *Options
	counts *counts
	client *http.Client
	log    *slog.Logger
	wake   chan struct{}

	mu    sync.Mutex // guards the following
	items map[string]*item
}

// An item is the state of an alert at the receiver.
type item struct {
	alert   Alert
	changed bool      // the receiver does not know this state
	tried   bool      // the receiver may know it
	again   time.Time // when to resend it
}

func newSender(kind string, u *url.URL, o *Options, c *counts) *sender {
	if kind == kindAlertmanager && !strings.HasSuffix(u.Path, "/api/v2/alerts") {
		u = u.JoinPath("api/v2/alerts")
	}
	client := outbound.NewClient(outbound.Reach{Declared: []string{(&url.URL{Scheme: u.Scheme, Host: u.Host}).String()}})
	client = o.Breakers.Guard("alerts", client, awayPause)
	return &sender{
		kind: kind, url: u, o: o, counts: c, client: client, wake: make(chan struct{}, 1), items: map[string]*item{},
		// Not the URL, because that of a webhook is a secret.
		log: o.Log.With("receiver", kind, "host", u.Host),
	}
}

// put adds a firing or ended alert.
func (s *sender) put(a Alert) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := a.ID()
	it := s.items[id]
	switch {
	case it == nil && !a.Ended.IsZero():
		return // the receiver never knew it
	case it == nil && len(s.items) >= maxItems:
		s.counts.dropped.Inc()
		return
	case it == nil:
		it = &item{changed: true}
		s.items[id] = it
	case !a.Ended.IsZero() && !it.tried:
		delete(s.items, id)
		return
	case a.Ended.IsZero() != it.alert.Ended.IsZero():
		it.changed = true
	}
	it.alert = a
	if it.changed {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// A dispatch is an alert that is being sent.
type dispatch struct {
	id    string
	alert Alert
}

// due returns what to send now, and when to ask again.
func (s *sender) due(now time.Time) (batch []dispatch, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, it := range s.items {
		repeats := s.kind == kindAlertmanager && !it.changed
		switch {
		case it.changed || repeats && !now.Before(it.again):
			batch = append(batch, dispatch{id, it.alert})
		case repeats && (next.IsZero() || it.again.Before(next)):
			next = it.again
		}
	}
	slices.SortFunc(batch, func(a, b dispatch) int {
		return cmp.Or(a.alert.Since.Compare(b.alert.Since), strings.Compare(a.id, b.id))
	})
	batch = batch[:min(maxBatch, len(batch))]
	for _, d := range batch {
		s.items[d.id].tried = true
	}
	return batch, next
}

// done records that the receiver has accepted or refused alerts.
func (s *sender) done(batch []dispatch, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range batch {
		it := s.items[d.id]
		it.again = now.Add(resend)
		if it.alert.Ended.IsZero() != d.alert.Ended.IsZero() {
			continue // it has changed meanwhile
		}
		it.changed = false
		if !it.alert.Ended.IsZero() {
			delete(s.items, d.id)
		}
	}
}

// run sends until ctx ends.
func (s *sender) run(ctx context.Context) {
	defer s.client.CloseIdleConnections()
	for ctx.Err() == nil {
		now := time.Now()
		batch, next := s.due(now)
		if len(batch) == 0 {
			s.sleep(ctx, next)
			continue
		}
		if err := s.send(ctx, batch, postTime); err != nil {
			if ctx.Err() != nil {
				break
			}
			if !outbound.IsOpen(err.error) {
				s.log.Warn("alerts cannot be sent, trying again", "alerts", len(batch), "error", err)
			}
			clock.Pause(ctx, max(againPause/2+rand.N(againPause), err.after))
		}
	}
	if batch, _ := s.due(time.Time{}); len(batch) > 0 {
		if err := s.send(context.WithoutCancel(ctx), batch, lastTry); err != nil {
			s.log.Warn("the last alerts cannot be sent", "alerts", len(batch), "error", err)
		}
	}
}

// sleep waits until there may be something to send.
func (s *sender) sleep(ctx context.Context, next time.Time) {
	var due <-chan time.Time
	if !next.IsZero() {
		t := time.NewTimer(time.Until(next))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ctx.Done():
	case <-s.wake:
	case <-due:
	}
}

// A sendError says why alerts were not accepted.
type sendError struct {
	error
	refused bool          // a retry is useless
	after   time.Duration // the delay that the receiver asks for
}

// send sends alerts in one request. If the receiver refuses them, it finds and drops the invalid
// ones. The error is nil or temporary.
func (s *sender) send(ctx context.Context, batch []dispatch, most time.Duration) *sendError {
	err := s.post(ctx, batch, most)
	switch half := len(batch) / 2; {
	case err == nil:
		s.counts.sent.WithLabelValues(s.kind).Add(float64(len(batch)))
	case outbound.IsOpen(err.error):
		return err // no request was made
	case !err.refused:
		s.counts.failed.WithLabelValues(s.kind).Inc()
		return err
	case half > 0:
		if err := s.send(ctx, batch[:half], most); err != nil {
			return err
		}
		return s.send(ctx, batch[half:], most)
	default:
		s.counts.failed.WithLabelValues(s.kind).Inc()
		s.counts.dropped.Inc()
		s.log.Error("alert is refused", "path", batch[0].alert.Path, "kind", batch[0].alert.Kind, "error", err)
	}
	s.done(batch, time.Now())
	return nil
}

// post makes one request.
func (s *sender) post(ctx context.Context, batch []dispatch, most time.Duration) *sendError {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	alerts := make([]Alert, len(batch))
	for i, d := range batch {
		alerts[i] = d.alert
	}
	encode := s.o.forWebhook
	if s.kind == kindAlertmanager {
		encode = s.o.forAlertmanager
	}
	body, err := encode(alerts, time.Now())
	if err != nil {
		return &sendError{error: err, refused: true}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url.String(), bytes.NewReader(body))
	if err != nil {
		return &sendError{error: err, refused: true}
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "procaas")
	reply, err := s.client.Do(r)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // its text would contain the URL
		}
		return &sendError{error: err}
	}
	defer reply.Body.Close()
	excerpt, _ := io.ReadAll(io.LimitReader(reply.Body, maxError))
	if reply.StatusCode/100 == 2 {
		return nil
	}
	refused := reply.StatusCode/100 == 4 && !slices.Contains([]int{401, 403, 404, 408, 425, 429}, reply.StatusCode)
	after, _ := outbound.RetryAfter(reply.Header, time.Now())
	return &sendError{error: fmt.Errorf("%s: %q", reply.Status, excerpt), refused: refused, after: min(after, mostAfter)}
}
