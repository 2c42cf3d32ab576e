// Package remote has the messages of the calls about sign-on, and calls them on a server.
package remote

import (
	"context"
	"net/http"

	"procaas/engine/api/client"
)

// An Issuer is who signs people on, as a tool for the command line needs it.
type Issuer struct {
	Issuer string   `json:"issuer" doc:"The address of the issuer."`
	Client string   `json:"client,omitempty" doc:"The client for the command line; absent if the server has none."`
	Scopes []string `json:"scopes,omitempty" doc:"What that client asks for."`
}

// Ask asks a server who signs people on.
func Ask(ctx context.Context, c *client.Client) (Issuer, error) {
	return client.Send[Issuer](ctx, c, http.MethodGet, "/v1/sign-on", nil, nil)
}
