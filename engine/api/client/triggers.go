package client

import (
	"context"
	"net/http"
	"strconv"

	"procaas/engine/api/wire"
	"procaas/engine/steering"
	"procaas/engine/triggers"
)

// Triggers lists the triggers, each with so many of its next due times.
func (c *Client) Triggers(ctx context.Context, next int) ([]triggers.TriggerView, error) {
	return List[triggers.TriggerView](ctx, c, "/v1/triggers?next="+strconv.Itoa(next))
}

// RunTrigger fires a trigger now.
func (c *Client) RunTrigger(ctx context.Context, id string, body wire.TriggerRun) (steering.FiredNow, error) {
	return Send[steering.FiredNow](ctx, c, http.MethodPost, "/v1/triggers/"+Segment(id)+"/run", body, nil)
}

// BackfillTrigger fires a trigger for a part of the due times of a window.
func (c *Client) BackfillTrigger(ctx context.Context, id string, body wire.TriggerBackfill) (steering.Backfilled, error) {
	return Send[steering.Backfilled](ctx, c, http.MethodPost, "/v1/triggers/"+Segment(id)+"/backfill", body, nil)
}
