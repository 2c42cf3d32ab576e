// Package addon plugs webhooks of providers into procaas.
package addon

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/addon"
	"procaas/engine/api"
	"procaas/engine/api/problem"
	"procaas/engine/api/ui"
	"procaas/engine/checkpoint"
	"procaas/handlers/webhooks"
	"procaas/handlers/webhooks/language"
)

// New returns the add-on.
func New() addon.Addon {
	return addon.Addon{
		Name: "webhooks", Sections: []tree.Section{language.Section()}, Compare: compareWebhooks, Problems: problems(), Alerts: alerts, New: newProcess,
		Commands: func(t addon.Tools) []addon.Command { return []addon.Command{{Command: webhooksCommand(t)}} },
	}
}

// problems lists why calls are refused.
func problems() []problem.Kind { return []problem.Kind{unknownWebhook, badSignature, badDelivery} }

// newProcess returns the webhooks of one process.
func newProcess() *addon.Process {
	g := &group{}
	return &addon.Process{
		Open:  g.open,
		Calls: func(*engine.Engine) api.Group { return g.calls() },
		Pages: func(*engine.Engine) []ui.Page { return g.pages() },
	}
}

func (g *group) open(_ context.Context, h *addon.Host) (*addon.Part, error) {
	g.bundle = h.Bundle
	g.secret = h.Secrets
	g.now = h.Now
	g.log = h.Log
	g.seen.deliveries = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_webhook_deliveries_total",
		Help: "Requests to webhooks, by outcome: accepted, duplicate, ignored, refused without a valid signature, failed, or unknown, without " +
			"the label webhook, if no file declares the webhook.",
	}, []string{"webhook", "outcome"})
	h.Metrics.MustRegister(g.seen.deliveries)
	return &addon.Part{Origin: g.origin}, nil
}

// origin says which delivery an event was.
func (g *group) origin(_ context.Context, e checkpoint.EventView) string {
	id, ok := strings.CutPrefix(e.Source, webhooks.SourceOf(""))
	if !ok {
		return ""
	}
	if w := language.Of(g.bundle(), id); w != nil && w.EventID.IsNull() {
		return "webhook " + id + ": delivery " + e.ID + " of " + w.Scheme
	}
	return "webhook " + id
}
