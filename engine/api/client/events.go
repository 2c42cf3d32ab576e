package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"procaas/engine/api/wire"
)

// Submit sends the JSON of one event of the plain form, or of an array of them. It returns the raw
// reply: a [wire.Receipt] or [wire.Receipts].
func (c *Client) Submit(ctx context.Context, body []byte) (json.RawMessage, error) {
	return Send[json.RawMessage](ctx, c, http.MethodPost, "/v1/events", json.RawMessage(body), nil)
}

// SubmitAndWait sends the JSON of one event, and waits for the end of its run, at most
// [rest.MaxWait]. The result has no status if the run continues. It also returns the raw reply.
func (c *Client) SubmitAndWait(ctx context.Context, body []byte, wait time.Duration) (wire.Result, json.RawMessage, error) {
	var result wire.Result
	reply, err := Send[json.RawMessage](ctx, c.Lasting(wait), http.MethodPost, "/v1/events?wait="+wait.String(), json.RawMessage(body), nil)
	if err == nil {
		err = json.Unmarshal(reply, &result)
	}
	return result, reply, err
}

// SubmitEvent sends one event.
func (c *Client) SubmitEvent(ctx context.Context, e wire.Event) (wire.Receipt, error) {
	return Send[wire.Receipt](ctx, c, http.MethodPost, "/v1/events", e, nil)
}
