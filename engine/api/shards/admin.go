package shards

import (
	"context"
	"errors"
	"net/http"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/store"
	"procaas/engine/transfers"
)

// This file is what operators do to shards, placements and transfers.

func (g *Group) adminOperations() []rest.Operation {
	return []rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodPut, Path: "/admin/v1/shard-maps/{map}/shards/{shard}", ID: "set-shard", Tag: "shards",
			Summary: "Close a shard for new keys, open it, drain it", Example: map[string]any{"closed": "disk at 78 %"},
			Replies: rest.OK("The shard."), Refusals: refusals(problem.UnknownShard),
		}, g.set),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/admin/v1/shard-maps/{map}/shards/{shard}/enroll", ID: "enroll-shard", Tag: "shards",
			Summary: "Install the fence and the publications on a shard",
			About:   "May be repeated. A shard that does not fulfil the conditions is left as it is; the reasons are in the reply.",
			Replies: rest.OK("What was found and done."), Refusals: refusals(problem.UnknownShard, problem.NoFitHost),
		}, g.enroll),
		g.regroupOperation("split", "split-placement", "Give a part of a placement one of its own",
			"In a map by range, the stretch of keys that `at` lies in is divided there; in others the key `at` gets a placement of its own. "+
				"Both stay on their "+
				"shard; a transfer can move them apart. Writers are held back for some milliseconds.", transfers.ShardMaps.SplitShard),
		g.regroupOperation("merge", "merge-placement", "Make a part that was split off part of the rest again",
			"The placement that the key `at` has of its own ends, and its rows belong to the placement that it was split off. In a map by range "+
				"the stretch of keys "+
				"that begins at `at` ends, and its keys belong to the stretch before it. Both must be on the same shard, and no transfer of either "+
				"may be under "+
				"way or observed. Writers are held back for some milliseconds.", transfers.ShardMaps.MergeShard),
	}
}

// A shardPath names a shard of a map.
type shardPath struct {
	mapPath
	Shard string `path:"shard" doc:"The shard's id."`
}

type setShard struct {
	shardPath
	Body wire.ShardChangeRequest
}

func (g *Group) set(c *rest.Call, in *setShard) (view transfers.ShardView, err error) {
	if err := g.check(); err != nil {
		return view, err
	}
	change := transfers.ShardChange{Closed: in.Body.Closed, Draining: in.Body.Draining}
	if change.Closed == nil && change.Draining == nil {
		return view, problem.Body([]problem.Fault{
			{Location: "/closed", Message: "want closed or draining, each with the reason, or empty text to take it back"},
		})
	}
	view, err = g.Maps.SetShard(c.Context(), in.Map, in.Shard, change, c.Actor(in.Body.Reason))
	return view, shardProblem(err)
}

func (g *Group) enroll(c *rest.Call, in *shardPath) (done transfers.ShardEnrollment, err error) {
	if err := g.check(); err != nil {
		return done, err
	}
	done, err = g.Maps.EnrollShard(c.Context(), in.Map, in.Shard, c.Actor(""))
	return done, shardProblem(err)
}

// A regroup is a split or a merge.
type regroup func(maps transfers.ShardMaps, ctx context.Context, shardMap, at string, dry bool,
	by store.Actor) (transfers.ShardRegroup, error)

type regroupShard struct {
	mapPath
	Body wire.ShardRegroupRequest
}

func (g *Group) regroupOperation(verb, id, summary, about string, do regroup) rest.Operation {
	return rest.Typed(rest.Operation{
		Method: http.MethodPost, Path: "/admin/v1/shard-maps/{map}/" + verb, ID: id, Tag: "shards", Summary: summary, About: about,
		Example: wire.ShardRegroupRequest{At: "5000"},
		Replies: []rest.Reply{{
			About:   "What has changed, or would.",
			Example: transfers.ShardRegroup{Map: "mail", Wide: "[", Narrow: "[5000", Shard: "s1", Changed: true},
		}},
		Refusals: refusals(problem.InvalidShardKey, problem.KeyNotPlaced, problem.ShardBusy, problem.NoFitHost),
	}, func(c *rest.Call, in *regroupShard) (done transfers.ShardRegroup, err error) {
		if err := g.check(); err != nil {
			return done, err
		}
		done, err = do(g.Maps, c.Context(), in.Map, in.Body.At, in.Body.DryRun, c.Actor(in.Body.Reason))
		return done, shardProblem(err)
	})
}

func (g *Group) transferOperations() []rest.Operation {
	example := transfers.ShardTransfer{
		ID: "01a200cf_7dd7_72c4_9871_ee0be87febda", Map: "mail", Key: "42", Source: "s1", Target: "s2", Method: "stream",
		Run: "01a200cf-7dd7-72c4-9871-ee0be87febda", Lane: "mail/00", State: transfers.TransferRunning, Step: "copy",
		Rows: 640000, Total: 1000000, Bytes: 231 << 20, Percent: 64,
	}
	return []rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/shard-maps/{map}/transfers", ID: "list-shard-transfers", Tag: "shards",
			Summary: "List the transfers of keys that are under way, and the latest that have ended",
			About:   "A transfer is a run of the pipeline shard-transfer: submit the event to begin one, and see the runs for all that ever were.",
			Replies: []rest.Reply{{
				About:   "The transfers, those that last began first.",
				Example: wire.Page[transfers.ShardTransfer]{Items: []transfers.ShardTransfer{example}},
			}},
			Refusals: refusals(),
		}, g.transfers),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/admin/v1/transfers/{transfer}/order", ID: "order-shard-transfer", Tag: "shards",
			Summary: "Pause a transfer, resume it, cancel it, roll it back",
			About: "Until the map names the target a transfer can be paused and cancelled: the source keeps the key. " +
				"Afterwards, while it is observed, it can be rolled back without a loss.",
			Example:  wire.TransferOrderRequest{Want: transfers.OrderPause},
			Replies:  []rest.Reply{{About: "The transfer as it was when the order came.", Example: example}},
			Refusals: []string{problem.UnknownTransfer, problem.TransferState, problem.StoreUnavailable},
		}, g.order),
	}
}

func (g *Group) transfers(c *rest.Call, in *mapPath) (page wire.Page[transfers.ShardTransfer], err error) {
	all, err := g.Transfers.ShardTransfers(c.Context(), in.Map)
	if err == nil && len(all) == 0 && g.Transfers.Bundle().ShardMap(in.Map) == nil { // a map that is declared no more may have some that last
		return page, problem.New(problem.UnknownShardMap, "there is no shard map %q", in.Map)
	}
	return rest.Listed(all, err)
}

type orderTransfer struct {
	Transfer string `path:"transfer" doc:"The transfer's id."`
	Body     wire.TransferOrderRequest
}

func (g *Group) order(c *rest.Call, in *orderTransfer) (transfers.ShardTransfer, error) {
	t, err := g.Transfers.OrderShardTransfer(c.Context(), in.Transfer, in.Body.Want, c.Actor(in.Body.Reason))
	switch {
	case errors.Is(err, store.ErrNotFound):
		err = problem.New(problem.UnknownTransfer, "%s", err)
	case errors.Is(err, transfers.ErrShardOrder):
		err = problem.New(problem.TransferState, "%s", err)
	}
	return t, err
}
