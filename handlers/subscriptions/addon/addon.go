// Package addon plugs subscriptions to brokers into procaas.
package addon

import (
	"context"
	_ "embed" // the template
	"net/http"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/addon"
	"procaas/engine/alert"
	"procaas/engine/api"
	"procaas/engine/api/problem"
	"procaas/engine/api/ui"
	"procaas/engine/checkpoint"
	"procaas/engine/credentials"
	"procaas/engine/store"
	"procaas/handlers/subscriptions"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/jetstream"
	"procaas/handlers/subscriptions/kafka"
	"procaas/handlers/subscriptions/language"
	"procaas/handlers/subscriptions/outbox"
	"procaas/handlers/subscriptions/publish"
	"procaas/handlers/subscriptions/rabbitmq"
	"procaas/handlers/subscriptions/remote"
)

// brokers are the brokers that subscriptions can read, and that handlers can send to. store is the address of the store in PostgreSQL; empty
// for another store.
func brokers(store string) map[string]broker.Kind {
	return map[string]broker.Kind{
		"nats":     {Open: jetstream.Open, Dial: jetstream.Dial},
		"kafka":    {Open: kafka.Open, Dial: kafka.Dial, Shared: true},
		"rabbitmq": {Open: rabbitmq.Open, Dial: rabbitmq.Dial},
		"postgres": {Open: outbox.Open},
		"store":    {Open: outbox.OfStore(store)},
	}
}

// brokersOf returns the brokers of a node.
func brokersOf(h *addon.Host) map[string]broker.Kind {
	if h.Postgres {
		return brokers(h.DSN)
	}
	return brokers("")
}

// New returns the add-on.
func New() addon.Addon {
	return addon.Addon{
		Name: "subscriptions", Sections: []tree.Section{language.Brokers(), language.Section()}, Compare: compare,
		Problems: []problem.Kind{unknownSubscription}, Alerts: alerts, Examine: examine,
		Types:    func() []engine.HandlerType { return publish.Types(nil) },
		New:      newProcess,
		Commands: func(t addon.Tools) []addon.Command { return []addon.Command{{Command: subscriptionsCommand(t)}} },
	}
}

// A process is the subscriptions of one process.
type process struct {
	readers *subscriptions.Readers // nil before the node runs
	sends   *publish.Pool          // nil before Open
}

func newProcess() *addon.Process {
	p := &process{}
	var host *addon.Host
	return &addon.Process{
		Open: func(_ context.Context, h *addon.Host) (*addon.Part, error) {
			host = h
			p.sends = publish.NewPool(publish.Options{Brokers: brokersOf(h), Secrets: h.Secrets, Dial: h.Targets.Dial, Metrics: h.Metrics})
			return &addon.Part{
				Types: publish.Types(p.sends),
				Adopt: func(_ context.Context, b *tree.Bundle) error {
					p.sends.Keep(b)
					return nil
				},
				Run: func(ctx context.Context, _ addon.Running) error {
					p.readers.Run(ctx)
					return nil
				},
				Origin: func(ctx context.Context, e checkpoint.EventView) string {
					if p.readers == nil {
						return ""
					}
					return p.readers.Origin(ctx, e)
				},
				Erase: func(ctx context.Context, of store.Erasing) (store.Erased, error) { return p.readers.Erase(ctx, of) },
			}, nil
		},
		Close: func() error {
			if p.sends != nil {
				p.sends.Close()
			}
			return nil
		},
		Calls: func(e *engine.Engine) api.Group {
			if host != nil {
				p.readers = readersOf(host, e)
			}
			return p.calls()
		},
		Pages: func(*engine.Engine) []ui.Page { return p.pages() },
	}
}

func readersOf(h *addon.Host, e *engine.Engine) *subscriptions.Readers {
	o := subscriptions.Options{
		Name: h.Name, Engine: e, Store: h.Store, Brokers: brokersOf(h), Secrets: h.Secrets, Dial: h.Targets.Dial, Memory: h.Memory,
		Metrics: subscriptions.NewMetrics(h.Metrics), Now: h.Now, Log: h.Log,
	}
	if h.Postgres {
		o.Submitted = func(ctx context.Context, is func(*broker.Message) bool, remove bool) (int, error) {
			return outbox.EraseSubmitted(ctx, h.DSN, is, remove)
		}
	}
	return subscriptions.New(o)
}

//go:embed subscriptions.html
var pageText string

// pages returns the page of subscriptions. Who is restricted to pipelines sees none of them.
func (p *process) pages() []ui.Page {
	return []ui.Page{{
		Pattern: "subscriptions", Menu: "Subscriptions", Template: pageText,
		Data: func(r *http.Request, caller credentials.Grant) (string, any, error) {
			var page struct {
				All     []remote.Subscription
				Letters map[string][]remote.DeadLetter
			}
			if caller.Bound() || p.readers == nil {
				return "Subscriptions", page, nil
			}
			var err error
			if page.All, err = p.readers.List(r.Context()); err != nil {
				return "", nil, err
			}
			page.Letters = map[string][]remote.DeadLetter{}
			for _, s := range page.All {
				all, err := p.readers.DeadLetters(r.Context(), s.ID)
				if err != nil {
					return "", nil, err
				}
				page.Letters[s.ID] = all[:min(len(all), shownLetters)]
			}
			return "Subscriptions", page, nil
		},
	}}
}

// shownLetters is how many dead letters of a subscription the page shows.
const shownLetters = 20

// alerts are the rules of subscriptions.
func alerts(server string) []alert.Rule {
	return []alert.Rule{{
		Name: "ProcaasSubscriptionFailing", For: "5m", Labels: alert.Severity("critical"),
		Expr: `max by (subscription) (procaas_subscription_connected) == 0`,
		Annotations: alert.Explain("subscription {{ $labels.subscription }} is not read",
			"The broker or the store does not answer, or the list of dead letters is full. The list says which. Messages stay in the broker.",
			"procaas subscriptions list"+alert.ServerFlag(server)),
	}, {
		Name: "ProcaasSubscriptionDeadLetters", For: "5m", Labels: alert.Severity("warning"),
		Expr: `max by (subscription) (procaas_subscription_dead_letters) > 0`,
		Annotations: alert.Explain("messages of subscription {{ $labels.subscription }} could become no event",
			"Mend their mapping or their sender, then retry or discard them.",
			"procaas subscriptions dead-letters {{ $labels.subscription }}"+alert.ServerFlag(server)),
	}}
}
