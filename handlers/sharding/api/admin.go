package api

import (
	"context"
	"errors"
	"net/http"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/store"
	"procaas/handlers/sharding/language"
	"procaas/handlers/sharding/remote"
	"procaas/handlers/sharding/transfers"
)

// This file serves operators' changes of shards, placements and transfers.

func (g *Group) adminOperations() []rest.Operation {
	return []rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodPut, Path: "/admin/v1/shard-maps/{map}/shards/{shard}", ID: "set-shard", Need: rest.Tunes, Tag: "shards",
			Summary: "Close a shard for new keys, open it, or drain it", Example: map[string]any{"closed": "disk at 78 %"},
			About:   "A drain is refused while a finding of `check` stops all transfers of its keys.",
			Replies: rest.OK("The shard."), Refusals: refusals, Problems: problems(unknownShard, shardBusy),
		}, g.set),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/shard-maps/{map}/check", ID: "check-shards", Need: rest.Views, Tag: "shards",
			Summary: "Check the tables of the shards",
			About: "Reads the settings and the catalog of each shard, and changes nothing. Each finding names the table, what would happen, " +
				"and the mend. `enroll` refuses a shard while a finding of level `error` is open.",
			Replies: rest.OK("The findings."), Refusals: refusals, Problems: problems(unknownShard),
		}, g.checkShards),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/admin/v1/shard-maps/{map}/shards/{shard}/enroll",
			ID: "enroll-shard", Need: rest.Rules, Tag: "shards",
			Summary: "Install the fence and the publications on a shard",
			About:   "You can repeat the call. It does not change a shard that fails the conditions: the reply has the reasons.",
			Replies: rest.OK("The findings and changes."), Refusals: refusals, Problems: problems(unknownShard, noFitHost),
		}, g.enroll),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/admin/v1/shard-maps/{map}/remove", ID: "remove-shard-map", Need: rest.Rules, Tag: "shards",
			Summary: "Remove what a former map has on its shards",
			About: "The map must not be declared any more. Removes its fences, publications, replication slots and prepared transactions " +
				"from each shard, and keeps the rows of your tables. The store keeps its placements, unless `forget` is true. If a shard fails, " +
				"its entry has the error, and you can repeat the call.",
			Example: remote.ShardRemoveRequest{DryRun: true},
			Replies: rest.OK("What was removed, or would be."), Refusals: refusals, Problems: problems(shardBusy),
		}, g.removeMap),
		g.regroupOperation("split", "split-placement", "Split a placement in two",
			"In a map by range, it divides the range of keys at `at`. In other maps, the key `at` gets a placement of its own. Both parts "+
				"stay on their shard, and a transfer can separate them. Writers wait for some milliseconds.", transfers.ShardMaps.SplitShard),
		g.regroupOperation("merge", "merge-placement", "Merge a placement into the one it was split from",
			"Ends the placement of the key `at`. Its rows belong again to the placement that it was split from. In a map by range, the "+
				"range that begins at `at` ends, and its keys join the range before it. Both must be on the same shard, and neither may have "+
				"a transfer that runs or is observed. Writers wait for some milliseconds.", transfers.ShardMaps.MergeShard),
	}
}

// A shardPath names a shard of a map.
type shardPath struct {
	mapPath
	Shard string `path:"shard" doc:"The shard's id."`
}

type setShard struct {
	shardPath
	Body remote.ShardChangeRequest
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

type checkQuery struct {
	mapPath
	Shard string `query:"shard" doc:"Only this shard."`
}

func (g *Group) checkShards(c *rest.Call, in *checkQuery) (found transfers.ShardCheck, err error) {
	if err := g.check(); err != nil {
		return found, err
	}
	found, err = g.Maps.CheckShards(c.Context(), in.Map, in.Shard)
	return found, shardProblem(err)
}

func (g *Group) enroll(c *rest.Call, in *shardPath) (done transfers.ShardEnrollment, err error) {
	if err := g.check(); err != nil {
		return done, err
	}
	done, err = g.Maps.EnrollShard(c.Context(), in.Map, in.Shard, c.Actor(""))
	return done, shardProblem(err)
}

type removeMap struct {
	mapPath
	Body remote.ShardRemoveRequest
}

func (g *Group) removeMap(c *rest.Call, in *removeMap) (done transfers.ShardRemoval, err error) {
	if err := g.check(); err != nil {
		return done, err
	}
	done, err = g.Maps.RemoveMap(c.Context(), in.Map, transfers.ShardRemove{DryRun: in.Body.DryRun, Forget: in.Body.Forget},
		c.Actor(in.Body.Reason))
	return done, shardProblem(err)
}

// A regroup is a split or a merge.
type regroup func(maps transfers.ShardMaps, ctx context.Context, shardMap, at string, dry bool,
	by store.Actor) (transfers.ShardRegroup, error)

type regroupShard struct {
	mapPath
	Body remote.ShardRegroupRequest
}

func (g *Group) regroupOperation(verb, id, summary, about string, do regroup) rest.Operation {
	return rest.Typed(rest.Operation{
		Method: http.MethodPost, Path: "/admin/v1/shard-maps/{map}/" + verb, ID: id, Need: rest.Tunes, Tag: "shards",
		Summary: summary, About: about,
		Example: remote.ShardRegroupRequest{At: "5000"},
		Replies: []rest.Reply{{
			About:   "The change, or what would change.",
			Example: transfers.ShardRegroup{Map: "mail", Wide: "[", Narrow: "[5000", Shard: "s1", Changed: true},
		}},
		Refusals: refusals, Problems: problems(invalidShardKey, keyNotPlaced, shardBusy, noFitHost),
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
		ID: "06h01jrtqtpc963hto5ugvvbr8", Map: "mail", Key: "42", Source: "s1", Target: "s2", Method: "stream",
		Run: "06h01jrtqtpc963hto5ugvvbr8", Lane: "mail/00", State: transfers.TransferRunning, Step: "copy",
		Rows: 640000, Total: 1000000, Bytes: 231 << 20, Percent: 64,
	}
	return []rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/shard-maps/{map}/transfers", ID: "list-shard-transfers", Need: rest.Surveys, Tag: "shards",
			Summary: "List current transfers of keys, and the latest ended ones",
			About:   "A transfer is a run of the pipeline shard-transfer. Submit that event to start one. The list of runs has all transfers.",
			Replies: []rest.Reply{{
				About:   "The transfers, newest first.",
				Example: wire.Page[transfers.ShardTransfer]{Items: []transfers.ShardTransfer{example}},
			}},
			Refusals: refusals, Problems: problems(),
		}, g.transfers),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/admin/v1/transfers/{transfer}/order",
			ID: "order-shard-transfer", Need: rest.Tunes, Tag: "shards",
			Summary: "Pause, resume, cancel, roll back or finish a transfer",
			About: "You can pause and cancel a transfer until the map names the target. The source then keeps the key. Afterwards, while " +
				"the transfer is observed, you can roll it back without a loss.",
			Example:  remote.TransferOrderRequest{Want: transfers.OrderPause},
			Replies:  []rest.Reply{{About: "The transfer as it was when the order arrived.", Example: example}},
			Refusals: []string{problem.StoreUnavailable}, Problems: []problem.Kind{unknownTransfer, transferState},
		}, g.order),
	}
}

func (g *Group) transfers(c *rest.Call, in *mapPath) (page wire.Page[transfers.ShardTransfer], err error) {
	all, err := g.Transfers.ShardTransfers(c.Context(), in.Map)
	// a map that is no longer declared may have some that are still in progress
	if err == nil && len(all) == 0 && language.MapOf(g.Transfers.Bundle(), in.Map) == nil {
		return page, unknownShardMap.New("there is no shard map %q", in.Map)
	}
	return rest.Listed(all, err)
}

type orderTransfer struct {
	Transfer string `path:"transfer" doc:"The transfer's id."`
	Body     remote.TransferOrderRequest
}

func (g *Group) order(c *rest.Call, in *orderTransfer) (transfers.ShardTransfer, error) {
	t, err := g.Transfers.OrderShardTransfer(c.Context(), in.Transfer, in.Body.Want, c.Actor(in.Body.Reason))
	switch {
	case errors.Is(err, store.ErrNotFound):
		err = unknownTransfer.New("%s", err)
	case errors.Is(err, transfers.ErrShardOrder):
		err = transferState.New("%s", err)
	}
	return t, err
}
