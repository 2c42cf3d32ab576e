package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"

	"procaas/engine"
)

// Transfers are moves of keys between shards, as operators see them.
type Transfers interface {
	ShardTransfers(ctx context.Context, shardMap string) ([]engine.ShardTransfer, error)
	OrderShardTransfer(ctx context.Context, id, want string, by engine.Actor) (engine.ShardTransfer, error)
	SetQueueMode(ctx context.Context, taskType string, mode engine.TaskMode, by engine.Actor, set func() error) error
}

// A TransferOrderRequest tells a transfer what an operator wants.
type TransferOrderRequest struct {
	Want   string `json:"want" enum:"pause,resume,cancel,rollback,finish" doc:"pause, resume, cancel, rollback, or finish: end the time in which it may be rolled back."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people."`
}

func (s *server) transferOperations() []operation {
	inMap := inPath("map", "The shard map's id.")
	example := engine.ShardTransfer{
		ID: "01a200cf_7dd7_72c4_9871_ee0be87febda", Map: "mail", Key: "42", Source: "s1", Target: "s2", Method: "stream",
		Run: "01a200cf-7dd7-72c4-9871-ee0be87febda", Lane: "mail/00", State: engine.TransferRunning, Step: "copy",
		Rows: 640000, Total: 1000000, Bytes: 231 << 20, Percent: 64,
	}
	return []operation{
		{
			method: http.MethodGet, path: "/v1/shard-maps/{map}/transfers", id: "list-shard-transfers", tag: "shards",
			summary: "List the transfers of keys that are under way, and the latest that have ended",
			about:   "A transfer is a run of the pipeline shard-transfer: submit the event to begin one, and see the runs for all that ever were.",
			params:  []*huma.Param{inMap},
			replies: []reply{{status: 200, about: "The transfers, those that last began first.", body: Page[engine.ShardTransfer]{},
				example: Page[engine.ShardTransfer]{Items: []engine.ShardTransfer{example}}}},
			refusals: shardRefusals(), serve: s.listTransfers,
		},
		{
			method: http.MethodPost, path: "/admin/v1/transfers/{transfer}/order", id: "order-shard-transfer", tag: "shards",
			summary: "Pause a transfer, resume it, cancel it, roll it back",
			about: "Until the map names the target a transfer can be paused and cancelled: the source keeps the key. " +
				"Afterwards, while it is observed, it can be rolled back without a loss.",
			params:   []*huma.Param{inPath("transfer", "The transfer's id.")},
			body:     jsonBody(s.schema(TransferOrderRequest{}), TransferOrderRequest{Want: engine.OrderPause}),
			replies:  []reply{{status: 200, about: "The transfer as it was when the order came.", body: engine.ShardTransfer{}, example: example}},
			refusals: []string{codeUnknownTransfer, codeTransferState, codeStoreUnavailable}, serve: s.orderTransfer,
		},
	}
}

func (s *server) listTransfers(w http.ResponseWriter, r *http.Request) error {
	id, err := pathValue(r, "map")
	if err != nil {
		return err
	}
	all, err := s.engine.ShardTransfers(r.Context(), id)
	if err != nil {
		return err
	}
	if len(all) == 0 && s.engine.Bundle().ShardMap(id) == nil { // a map that is declared no more may have some that last
		return refuse(codeUnknownShardMap, "there is no shard map %q", id)
	}
	return writeJSON(w, http.StatusOK, pageOf(all, ""))
}

func (s *server) orderTransfer(w http.ResponseWriter, r *http.Request) error {
	id, err := pathValue(r, "transfer")
	if err != nil {
		return err
	}
	f, err := s.readObject(w, r)
	if err != nil {
		return err
	}
	want, reason := f.required("want"), f.label("reason", maxReason)
	f.refuseUnknown()
	if err := faulty(f.faults); err != nil {
		return err
	}
	t, err := s.engine.OrderShardTransfer(r.Context(), id, want, actor(r, reason))
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return refuse(codeUnknownTransfer, "%s", err)
	case errors.Is(err, engine.ErrShardOrder):
		return refuse(codeTransferState, "%s", err)
	case err != nil:
		return err
	}
	return writeJSON(w, http.StatusOK, t)
}

// ShardTransfers lists the transfers of a map.
func (c *Client) ShardTransfers(ctx context.Context, shardMap string) ([]engine.ShardTransfer, error) {
	var page Page[engine.ShardTransfer]
	err := c.call(ctx, http.MethodGet, shardPath(shardMap, "/transfers"), nil, nil, &page)
	return page.Items, err
}

// OrderShardTransfer tells a transfer what to do.
func (c *Client) OrderShardTransfer(ctx context.Context, id string, order TransferOrderRequest) (engine.ShardTransfer, error) {
	var t engine.ShardTransfer
	err := c.call(ctx, http.MethodPost, "/admin/v1/transfers/"+url.PathEscape(id)+"/order", order, nil, &t)
	return t, err
}
