package client

import (
	"context"
	"encoding/json"
	"net/http"

	"procaas/engine/api/wire"
)

// eventsCalls are the calls that bring events in.
type eventsCalls struct{ *caller }

// Submit sends the JSON of one event of the plain form, or of an array of them,
// and returns the reply as it came: a [wire.Receipt] or [wire.Receipts].
func (c eventsCalls) Submit(ctx context.Context, body []byte) (json.RawMessage, error) {
	return send[json.RawMessage](ctx, c.caller, http.MethodPost, "/v1/events", json.RawMessage(body), nil)
}

// SubmitEvent sends one event.
func (c eventsCalls) SubmitEvent(ctx context.Context, e wire.Event) (wire.Receipt, error) {
	return send[wire.Receipt](ctx, c.caller, http.MethodPost, "/v1/events", e, nil)
}
