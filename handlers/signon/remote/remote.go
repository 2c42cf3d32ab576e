// Package remote has the messages of the calls about sign-on, and calls them on a server.
package remote

import (
	"context"
	"net/http"

	"procaas/engine/api/client"
)

// An Issuer signs people on, as a tool for the command line needs it.
type Issuer struct {
	ID     string   `json:"id,omitempty" doc:"What people call the issuer; absent if the server has only one without a name."`
	Issuer string   `json:"issuer" doc:"The address of the issuer."`
	Client string   `json:"client,omitempty" doc:"The client for the command line; absent if the issuer has none."`
	Scopes []string `json:"scopes,omitempty" doc:"What that client asks for."`
}

// A SignOn says who signs people on.
type SignOn struct {
	Issuer // the first one for the command line

	Issuers []Issuer `json:"issuers" doc:"All issuers."`
}

// Ask asks a server who signs people on.
func Ask(ctx context.Context, c *client.Client) (SignOn, error) {
	return client.Send[SignOn](ctx, c, http.MethodGet, "/v1/sign-on", nil, nil)
}
