// Package remote has the requests of the calls about the databases of an inbox, and calls them on a server. The tags of a field
// are its only declaration: requests are read, checked and described by them.
package remote

import (
	"context"
	"net/http"

	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/handlers/inbox"
)

// An InboxMoveRequest asks for a move of slots.
type InboxMoveRequest struct {
	Slots  string        `json:"slots" maxLength:"20480" doc:"The slots, all of one cell: numbers and ranges." example:"0-2047"`
	To     string        `json:"to" doc:"The target cell."`
	Wait   wire.Duration `json:"wait,omitempty" doc:"How long runs in flight have to end or pause. Meanwhile events of the slots wait. The default is 10s, and the maximum 5m."`
	DryRun bool          `json:"dry_run,omitempty" doc:"true only returns the plan."`
	Reason string        `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit."`
}

// An InboxRemovalRequest asks to remove a database from the inbox.
type InboxRemovalRequest struct {
	Cell   string `json:"cell" doc:"The database." example:"b"`
	Forget bool   `json:"forget,omitempty" doc:"true removes it although it has ended runs or cannot be reached. Lists no longer show these runs."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit."`
}

// Read asks a server which database has which slots.
func Read(ctx context.Context, c *client.Client) (inbox.View, error) {
	return client.Send[inbox.View](ctx, c, http.MethodGet, "/admin/v1/inbox", nil, nil)
}

// ReadLoads is Read with the load of each slot.
func ReadLoads(ctx context.Context, c *client.Client) (inbox.View, error) {
	return client.Send[inbox.View](ctx, c, http.MethodGet, "/admin/v1/inbox?loads=true", nil, nil)
}

// Move begins a move of slots.
func Move(ctx context.Context, c *client.Client, order InboxMoveRequest) (inbox.Move, error) {
	return client.Send[inbox.Move](ctx, c, http.MethodPost, "/admin/v1/inbox/moves", order, nil)
}

// Remove permanently removes a database from the inbox, and returns the inbox without it.
func Remove(ctx context.Context, c *client.Client, request InboxRemovalRequest) (inbox.View, error) {
	return client.Send[inbox.View](ctx, c, http.MethodPost, "/admin/v1/inbox/removals", request, nil)
}
