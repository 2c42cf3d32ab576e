package addon

import (
	_ "embed" // the template
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/alert"
	"procaas/engine/api/ui"
	"procaas/engine/credentials"
	"procaas/handlers/webhooks/language"
	"procaas/handlers/webhooks/remote"
)

// This file shows what became of requests: in lists, on a page, and in an alert.

// An outcome is what became of a request.
type outcome string

const (
	accepted  outcome = "accepted"
	duplicate outcome = "duplicate"
	ignored   outcome = "ignored"
	refused   outcome = "refused" // no valid signature
	failed    outcome = "failed"  // no event could be made or stored, or the node has no secret
	unknown   outcome = "unknown" // no file declares the webhook
)

// seen counts requests on this node, to declared webhooks only, so that nobody can fill it. The zero value is ready to use.
type seen struct {
	deliveries *prometheus.CounterVec // nil for none

	mu     sync.Mutex // guards the rest
	each   map[string]*remote.Webhook
	told   time.Time // when the log last said that a webhook is unknown
	untold int       // requests to unknown webhooks since then
}

// tellEach is the shortest time between two lines of the log about unknown webhooks: anybody may send such requests.
const tellEach = 10 * time.Second

// shownID is how much of the id of an unknown webhook the log has.
const shownID = 64

// unknown counts a request to a webhook that no file declares. The metric does not have its id, so that nobody can fill it.
func (s *seen) unknown(log *slog.Logger, id string, now time.Time) {
	if s.deliveries != nil {
		s.deliveries.WithLabelValues("", string(unknown)).Inc()
	}
	s.mu.Lock()
	s.untold++
	n := s.untold
	tell := s.told.IsZero() || now.Sub(s.told) >= tellEach
	if tell {
		s.told, s.untold = now, 0
	}
	s.mu.Unlock()
	if tell {
		log.Warn("a request came to a webhook that no file declares", "webhook", id[:min(len(id), shownID)], "requests", n)
	}
}

// note counts a request. why says why it was refused or failed.
func (s *seen) note(id string, o outcome, why string, now time.Time) {
	if s.deliveries != nil {
		s.deliveries.WithLabelValues(id, string(o)).Inc()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.each == nil {
		s.each = map[string]*remote.Webhook{}
	}
	w := s.each[id]
	if w == nil {
		w = &remote.Webhook{}
		s.each[id] = w
	}
	switch o {
	case accepted:
		w.Accepted++
	case duplicate:
		w.Duplicate++
	case ignored:
		w.Ignored++
	case refused:
		w.Refused++
	case failed:
		w.Failed++
	}
	w.Last = &now
	if why != "" {
		w.Problem, w.Troubled = why, &now
	}
}

// list lists the declared webhooks.
func (g *group) list() []remote.Webhook {
	all := []remote.Webhook{}
	if g.bundle == nil {
		return all
	}
	g.seen.mu.Lock()
	defer g.seen.mu.Unlock()
	for _, w := range language.All(g.bundle()) {
		var one remote.Webhook
		if s := g.seen.each[w.ID]; s != nil {
			one = *s
		}
		one.ID = w.ID
		one.Scheme = w.Scheme
		one.Owner = w.Owner
		one.Path = "/v1/webhooks/" + w.ID
		all = append(all, one)
	}
	return all
}

//go:embed webhooks.html
var pageText string

// pages returns the page of webhooks. Who is restricted to pipelines sees none of them.
func (g *group) pages() []ui.Page {
	return []ui.Page{{
		Pattern: "webhooks", Menu: "Webhooks", Template: pageText,
		Data: func(_ *http.Request, caller credentials.Grant) (string, any, error) {
			if caller.Bound() {
				return "Webhooks", []remote.Webhook{}, nil
			}
			return "Webhooks", g.list(), nil
		},
	}}
}

// alerts are the rules of webhooks.
func alerts(server string) []alert.Rule {
	return []alert.Rule{{
		Name: "ProcaasWebhookRefused", For: "10m", Labels: alert.Severity("warning"),
		Expr: `sum by (webhook) (rate(procaas_webhook_deliveries_total{outcome=~"refused|failed"}[10m])) / ` +
			`sum by (webhook) (rate(procaas_webhook_deliveries_total[10m])) > 0.5`,
		Annotations: alert.Explain("most requests to webhook {{ $labels.webhook }} are refused or fail",
			"The provider may have another secret, or may send another form. The list says why the last request was not taken.",
			"procaas webhooks list"+alert.ServerFlag(server)),
	}}
}
