package addon

import (
	"context"
	"errors"
	"net/http"

	"procaas/engine/api"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/store"
	"procaas/handlers/subscriptions"
	"procaas/handlers/subscriptions/remote"
)

var unknownSubscription = problem.Kind{
	Code: "unknown_subscription", Status: http.StatusNotFound, Title: "There is no such subscription or dead letter",
}

// A subscriptionPath names a subscription.
type subscriptionPath struct {
	Subscription string `path:"subscription" doc:"The id of the subscription." example:"orders"`
}

// A letterPath names a dead letter.
type letterPath struct {
	subscriptionPath
	Letter string `query:"letter" bytes:"512" required:"true" doc:"The id of the dead letter." example:"ORDERS/7"`
}

type changeLetters struct {
	subscriptionPath
	Body remote.Choice
}

// calls describes the calls in the API.
func (p *process) calls() api.Group {
	return api.Group{
		Tag: "subscriptions", About: "Messages of brokers that become events.",
		Operations: func(api.Server) []rest.Operation {
			letters := "/admin/v1/subscriptions/{subscription}/dead-letters"
			return []rest.Operation{
				rest.Typed(rest.Operation{
					Method: http.MethodGet, Path: "/v1/subscriptions", ID: "list-subscriptions", Need: rest.Surveys, Tag: "subscriptions",
					Summary: "List subscriptions, and what the nodes that read them last said",
					Replies: []rest.Reply{{About: "The subscriptions.", Example: wire.PageOf([]remote.Subscription{{
						ID: "orders", Broker: "nats", From: "ORDERS", State: remote.Reading, Node: "node-1", Lag: 3, Accepted: 1200,
					}}, "")}},
					Refusals: []string{problem.StoreUnavailable},
				}, func(c *rest.Call, _ *rest.Nothing) (wire.Page[remote.Subscription], error) {
					if p.readers == nil {
						return wire.PageOf([]remote.Subscription{}, ""), nil
					}
					return rest.Listed(p.readers.List(c.Context()))
				}),
				rest.Typed(rest.Operation{
					Method: http.MethodGet, Path: letters, ID: "list-dead-letters", Need: rest.Surveys, Tag: "subscriptions",
					Summary: "List the messages of a subscription that could become no event", Replies: rest.OK("The dead letters, oldest first."),
					Refusals: []string{problem.StoreUnavailable}, Problems: []problem.Kind{unknownSubscription},
				}, func(c *rest.Call, in *subscriptionPath) (wire.Page[remote.DeadLetter], error) {
					all, err := p.readers.DeadLetters(c.Context(), in.Subscription)
					return rest.Listed(all, refused(err))
				}),
				rest.Typed(rest.Operation{
					Method: http.MethodGet, Path: letters + "/message", ID: "get-dead-letter", Need: rest.Surveys, Tag: "subscriptions",
					Summary: "Read a dead letter with its headers and its body", Replies: rest.OK("The dead letter."),
					Refusals: []string{problem.StoreUnavailable}, Problems: []problem.Kind{unknownSubscription},
				}, func(c *rest.Call, in *letterPath) (remote.Message, error) {
					m, err := p.readers.DeadLetter(c.Context(), in.Subscription, in.Letter)
					return m, refused(err)
				}),
				p.change(letters+"/retry", "retry-dead-letters", "Submit dead letters again by the present definition", (*subscriptions.Readers).Retry),
				p.change(letters+"/discard", "discard-dead-letters", "Forget dead letters", (*subscriptions.Readers).Discard),
			}
		},
	}
}

// change returns the call that changes dead letters.
func (p *process) change(path, id, summary string,
	do func(*subscriptions.Readers, context.Context, string, remote.Choice, store.Actor) (remote.Changed, error),
) rest.Operation {
	return rest.Typed(rest.Operation{
		Method: http.MethodPost, Path: path, ID: id, Need: rest.Tunes, Tag: "subscriptions", Summary: summary,
		Example: remote.Choice{All: true, Reason: "the sender is mended"}, Replies: rest.OK("How many."),
		Refusals: []string{problem.StoreUnavailable}, Problems: []problem.Kind{unknownSubscription},
	}, func(c *rest.Call, in *changeLetters) (remote.Changed, error) {
		if in.Body.All == (len(in.Body.IDs) > 0) {
			return remote.Changed{}, problem.Body([]problem.Fault{{Location: "/ids", Message: "want the ids of dead letters, or all: true"}})
		}
		done, err := do(p.readers, c.Context(), in.Subscription, in.Body, c.Actor(in.Body.Reason))
		return done, refused(err)
	})
}

// refused makes a problem of what the caller can mend.
func refused(err error) error {
	if errors.Is(err, subscriptions.ErrUnknown) {
		return unknownSubscription.New("%s", err)
	}
	return err
}
