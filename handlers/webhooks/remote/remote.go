// Package remote has the messages of the calls about webhooks, and calls them on a server.
package remote

import (
	"context"
	"time"

	"procaas/engine/api/client"
)

// A Delivery is what became of a request.
type Delivery struct {
	Event     string `json:"event,omitempty" doc:"The id of the event."`
	Run       string `json:"run,omitempty" doc:"The run of the event."`
	Duplicate bool   `json:"duplicate,omitempty" doc:"true if this delivery was accepted before."`
	Ignored   string `json:"ignored,omitempty" doc:"Why the request is no event; empty if it is one."`
}

// A Webhook is a webhook with what one node saw of it.
type Webhook struct {
	ID     string `json:"id" doc:"The id."`
	Scheme string `json:"scheme" enum:"github,stripe,slack,standard,hmac" doc:"How the provider signs."`
	Path   string `json:"path" doc:"The path of its address."`
	Owner  string `json:"owner,omitempty" doc:"The team that looks after it."`

	Accepted  int64 `json:"accepted" doc:"Requests that became events, on this node since it started."`
	Duplicate int64 `json:"duplicate" doc:"Deliveries that came again."`
	Ignored   int64 `json:"ignored" doc:"Requests that the webhook does not want."`
	Refused   int64 `json:"refused" doc:"Requests without a valid signature."`
	Failed    int64 `json:"failed" doc:"Requests of which no event could be made or stored, or which the node has no secret to check."`

	Last     *time.Time `json:"last,omitempty" doc:"When the last request came."`
	Problem  string     `json:"problem,omitempty" doc:"Why the last refused or failed request was not taken."`
	Troubled *time.Time `json:"troubled,omitempty" doc:"When that was."`
}

// List lists the webhooks of a server.
func List(ctx context.Context, c *client.Client) ([]Webhook, error) {
	return client.List[Webhook](ctx, c, "/v1/webhooks")
}
