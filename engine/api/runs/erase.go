package runs

import (
	"errors"
	"net/http"
	"time"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/records"
	"procaas/engine/store"
)

func (g *Group) eraseOperation() rest.Operation {
	return rest.Typed(rest.Operation{
		Method: http.MethodPost, Path: "/admin/v1/erasures", ID: "erase-key", Need: rest.Rules, Tag: "runs",
		Summary: "Erase all data of a key",
		About: "Removes the runs of the key with all that they keep, its state, the ids of its events, and its tasks. The server refuses while " +
			"something of the key is unfinished, unless `cancel` ends it first. An event that comes meanwhile begins the key anew, and stays. " +
			"After an error, repeat the call: it removes the rest. The audit keeps the receipt, without the key. The page " +
			"docs/operating/erase.md lists what remains, and until when.",
		Example: wire.Erasure{Flow: "orders", Key: "o-1", Preview: true, Reason: "request 4711"},
		Replies: rest.OK("The receipt, or with `preview` what would go."),
		Refusals: []string{
			problem.FlowNotFound, problem.KeyUnfinished, problem.KeyMoving, problem.CellAway, problem.TooLong, problem.StoreUnavailable,
		},
		Waits: func(*http.Request) time.Duration { return wire.EraseTime },
	}, g.erase)
}

type erasure struct{ Body wire.Erasure }

func (g *Group) erase(c *rest.Call, in *erasure) (records.ErasureReceipt, error) {
	e := records.Erasure{
		Flow: in.Body.Flow, Key: in.Body.Key, Cancel: in.Body.Cancel, Preview: in.Body.Preview, Vacuum: in.Body.Vacuum,
	}
	r, err := g.Eraser.Erase(c.Context(), e, c.Actor(in.Body.Reason))
	if busy, ok := errors.AsType[*records.UnfinishedError](err); ok {
		return r, problem.New(problem.KeyUnfinished, "%s; wait for their end, or repeat with \"cancel\": true (--cancel)", busy)
	}
	if errors.Is(err, store.ErrNotFound) {
		err = g.noFlow(e.Flow)
	}
	return r, err
}
