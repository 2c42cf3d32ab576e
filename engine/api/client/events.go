package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"procaas/engine/api/wire"
)

// eventsCalls are the calls that submit events.
type eventsCalls struct{ *caller }

// Submit sends the JSON of one event of the plain form, or of an array of them. It returns the raw
// reply: a [wire.Receipt] or [wire.Receipts].
func (c eventsCalls) Submit(ctx context.Context, body []byte) (json.RawMessage, error) {
	return send[json.RawMessage](ctx, c.caller, http.MethodPost, "/v1/events", json.RawMessage(body), nil)
}

// SubmitAndWait sends the JSON of one event, and waits for the end of its run, at most
// [rest.MaxWait]. The result has no status if the run continues. It also returns the raw reply.
func (c eventsCalls) SubmitAndWait(ctx context.Context, body []byte, wait time.Duration) (wire.Result, json.RawMessage, error) {
	var result wire.Result
	reply, err := send[json.RawMessage](ctx, c.lasting(wait), http.MethodPost, "/v1/events?wait="+wait.String(), json.RawMessage(body), nil)
	if err == nil {
		err = json.Unmarshal(reply, &result)
	}
	return result, reply, err
}

// SubmitEvent sends one event.
func (c eventsCalls) SubmitEvent(ctx context.Context, e wire.Event) (wire.Receipt, error) {
	return send[wire.Receipt](ctx, c.caller, http.MethodPost, "/v1/events", e, nil)
}
