// Package api serves the calls about shard maps: where keys live, the shards and their hosts,
// and the transfers of keys.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/api"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/store"
	"procaas/handlers/sharding/remote"
	"procaas/handlers/sharding/transfers"
)

// Transfers are moves of keys between shards, for operators.
type Transfers interface {
	ShardTransfers(ctx context.Context, shardMap string) ([]transfers.ShardTransfer, error)
	OrderShardTransfer(ctx context.Context, id, want string, by store.Actor) (transfers.ShardTransfer, error)
	Bundle() *tree.Bundle
}

// A Group serves the calls about shard maps.
type Group struct {
	Maps      transfers.ShardMaps // nil for none
	Transfers Transfers
	Streams   *rest.Streams

	warm atomic.Bool // a question was answered, so the tokens are in memory
}

// Calls describes the group in the API. Maps are nil on a node that keeps none.
func Calls(maps transfers.ShardMaps, of Transfers) api.Group {
	return api.Group{
		Tag: "shards", About: "Find the shard that has the data of a key.",
		Operations: func(s api.Server) []rest.Operation {
			return (&Group{Maps: maps, Transfers: of, Streams: s.Streams}).Operations()
		},
	}
}

// watchTime is how long a watcher waits for a change.
const watchTime = 5 * time.Second

// refusals are the codes of all calls about shard maps.
var refusals = []string{problem.InvalidParameter, problem.StoreUnavailable}

// problems adds the one that all these calls have.
func problems(more ...problem.Kind) []problem.Kind { return append(more, unknownShardMap) }

// Operations lists the calls.
func (g *Group) Operations() []rest.Operation {
	return append([]rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/shard-maps", ID: "list-shard-maps", Need: rest.Views, Tag: "shards",
			Summary: "List the shard maps",
			Replies: rest.OK("The maps."), Refusals: []string{problem.StoreUnavailable},
		}, g.list),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/shard-maps/{map}/resolve", ID: "resolve-shard", Need: rest.Asks, Tag: "shards",
			Summary: "Find the shard of a key",
			About: "The reply has the shard, its hosts in the order in which to try them, and the placement and its epoch for " +
				"`procaas.guard`. Call the guard first in each transaction that writes. If it fails with PC001 or PC002, ask again with " +
				"`after-epoch`. If the map allows it, the call registers a key without a placement.",
			Replies: []rest.Reply{{About: "Where the key lives.", Example: transfers.ShardAnswer{
				Map: "mail", Key: "42/inbox", Placement: "42", Shard: "s1", Class: "hot", Epoch: 3,
				Hosts: []transfers.ShardHostBrief{{Address: "db1.example.com:5432", DC: "a", Role: "master"}},
				DSN:   "postgres://app@db1.example.com:5432/mail?target_session_attrs=read-write",
			}}},
			Refusals: refusals, Problems: problems(invalidShardKey, keyNotPlaced, noFitHost, shardBusy),
			Quick: g.quickly,
		}, g.resolve),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/v1/shard-maps/{map}/resolve", ID: "resolve-shards", Need: rest.Asks, Tag: "shards",
			Summary:  "Find the shards of many keys",
			Example:  remote.ShardBatch{Keys: []string{"42", "43"}, Mode: transfers.ShardReplica, DC: "a"},
			Replies:  rest.OK("An answer, or the reason why there is none, for each key in order."),
			Refusals: refusals, Problems: problems(),
		}, g.resolveMany),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/shard-maps/{map}/watch", ID: "watch-shard-map", Need: rest.Asks, Tag: "shards",
			Summary: "Wait for placements to change",
			About: "Returns the placements that changed since a position, as soon as there are any, or none after five seconds. With " +
				"`reset`, everything that the caller has may be old. This happens without a position, or with one of another node.\n\n" +
				"With `Accept: text/event-stream` the server sends the same as events named `changes`, with the position as id. It sends the " +
				"first event at once, others as placements change, and a comment every 15 seconds. The stream ends with the node, or after an " +
				"hour. Reconnect with `Last-Event-ID` to continue from there.",
			Replies:  []rest.Reply{{About: "The changes.", ContentType: rest.MediaStream}},
			Refusals: refusals, Problems: problems(), Lasts: rest.WantsStream,
		}, g.watch),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/shard-maps/{map}/shards", ID: "list-shards", Need: rest.Views, Tag: "shards",
			Summary: "List the shards of a map with their hosts", Replies: rest.OK("The shards."),
			Refusals: refusals, Problems: problems(),
		}, g.shards),
	}, append(g.adminOperations(), g.transferOperations()...)...)
}

// A mapPath names a shard map.
type mapPath struct {
	Map string `path:"map" doc:"The shard map's id."`
}

// check refuses calls if the server has no shard maps.
func (g *Group) check() error {
	if g.Maps == nil {
		return unknownShardMap.New("this server keeps no shard maps: they need a store in PostgreSQL, and shard-maps: in " +
			"the pipelines")
	}
	return nil
}

// shardProblem converts an error about shards to a problem.
func shardProblem(err error) error {
	for known, kind := range map[error]problem.Kind{
		transfers.ErrShardMap: unknownShardMap, transfers.ErrShard: unknownShard, transfers.ErrShardKey: invalidShardKey,
		transfers.ErrUnplaced: keyNotPlaced, transfers.ErrShardBusy: shardBusy, transfers.ErrShardFindings: shardBusy,
	} {
		if errors.Is(err, known) {
			return kind.New("%s", err)
		}
	}
	if errors.Is(err, transfers.ErrNoHost) {
		return noFitHost.New("%s", err).With("Retry-After", "1")
	}
	return err
}

func (g *Group) list(c *rest.Call, _ *rest.Nothing) (wire.Page[transfers.ShardMapView], error) {
	if g.Maps == nil {
		return rest.Listed([]transfers.ShardMapView{}, nil)
	}
	return rest.Listed(g.Maps.MapViews(c.Context()))
}

type resolveQuery struct {
	mapPath
	Key        string        `query:"key" bytes:"any" required:"true" doc:"The key: its parts joined by slashes, with % / # [ within a part as %25 %2F %23 %5B, before the encoding of the query."`
	Mode       string        `query:"mode" enum:"master,replica,any" default:"master" doc:"The purpose of the hosts: master to write, replica to read, any to read from the nearest host."`
	MaxLag     wire.Duration `query:"max-lag" doc:"The largest lag of a replica, such as 2s. The default is any."`
	MinLSN     string        `query:"min-lsn" doc:"The position of the log that a replica must have replayed, such as 16/B374D848: that of your last write."`
	DC         string        `query:"dc" doc:"The data centre that asks. Its hosts are preferred while enough of them are usable."`
	AfterEpoch int64         `query:"after-epoch" doc:"Wait up to two seconds until the placement has a later epoch."`
	Register   *bool         `query:"register" default:"true" doc:"false: do not register a key without a placement."`
}

// resolve returns where one key lives. It may wait for a later epoch, or register the key.
func (g *Group) resolve(c *rest.Call, in *resolveQuery) (answer transfers.ShardAnswer, err error) {
	if err := g.check(); err != nil {
		return answer, err
	}
	g.warm.Store(true)
	q := transfers.ShardQuestion{
		Key: in.Key, Mode: in.Mode, MaxLag: time.Duration(in.MaxLag), DC: in.DC, AfterEpoch: in.AfterEpoch, Known: in.Register != nil &&
			!*in.Register,
	}
	var faults []problem.Fault
	if in.AfterEpoch < 0 {
		faults = append(faults, problem.Fault{Location: "query/after-epoch", Message: "want a whole number, have " +
			rest.Shown(int(in.AfterEpoch))})
	}
	if q.MinLSN, err = parseLSN(in.MinLSN); err != nil {
		faults = append(faults, problem.Fault{Location: "query/min-lsn", Message: err.Error()})
	}
	if err := problem.Parameter(faults); err != nil {
		return answer, err
	}
	answer, err = g.Maps.Resolve(c.Context(), in.Map, q)
	return answer, shardProblem(err)
}

// parseLSN parses a log position. Empty text means none.
func parseLSN(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	high, low, _ := strings.Cut(text, "/")
	a, err := strconv.ParseUint(high, 16, 32)
	b, err2 := strconv.ParseUint(low, 16, 32)
	if err != nil || err2 != nil {
		return 0, errors.New("want a position such as 16/B374D848, have " + rest.Shown(text))
	}
	return a<<32 | b, nil
}

type resolveBatch struct {
	mapPath
	Body remote.ShardBatch
}

// resolveMany answers for each key on its own, so one failure does not affect the others.
func (g *Group) resolveMany(c *rest.Call, in *resolveBatch) (page wire.Page[remote.ShardBatchItem], err error) {
	if err := g.check(); err != nil {
		return page, err
	}
	b := &in.Body
	q := transfers.ShardQuestion{Mode: b.Mode, MaxLag: time.Duration(b.MaxLag), DC: b.DC}
	if q.Mode == "" {
		q.Mode = transfers.ShardMaster
	}
	if q.MinLSN, err = parseLSN(b.MinLSN); err != nil {
		return page, problem.Body([]problem.Fault{{Location: "/min-lsn", Message: err.Error()}})
	}
	items := make([]remote.ShardBatchItem, len(b.Keys))
	for i, key := range b.Keys {
		q.Key, items[i].Key = key, key
		answer, err := g.Maps.Resolve(c.Context(), in.Map, q)
		if errors.Is(err, transfers.ErrShardMap) {
			return page, shardProblem(err)
		}
		if err != nil {
			p := problem.Of(shardProblem(err))
			items[i].Code, items[i].Detail = p.Code, p.Detail
			continue
		}
		items[i].Answer = &answer
	}
	return wire.PageOf(items, ""), nil
}

type watchQuery struct {
	mapPath
	After string `query:"after" bytes:"512" doc:"The position: next of the previous call."`
	Last  string `header:"Last-Event-ID" bytes:"512" doc:"For a stream, instead of after."`
}

// watch waits for changes once, or streams them.
func (g *Group) watch(c *rest.Call, in *watchQuery) (changes transfers.ShardChanges, err error) {
	if err := g.check(); err != nil {
		return changes, err
	}
	after := in.After
	if in.Last != "" {
		after = in.Last
	}
	if rest.WantsStream(c.R) {
		return changes, g.stream(c, in.Map, after)
	}
	ctx, cancel := g.Streams.UntilEnd(c.Context(), watchTime)
	defer cancel()
	changes, err = g.Maps.Watch(ctx, in.Map, after)
	return changes, shardProblem(err)
}

// stream streams the changes of a map. The first event has the position to continue from, and says
// whether the caller must forget everything because its position is unknown.
func (g *Group) stream(c *rest.Call, id, after string) error {
	atOnce, cancel := context.WithCancel(c.Context())
	cancel()
	first, err := g.Maps.Watch(atOnce, id, after)
	if err != nil {
		return shardProblem(err)
	}
	begun := false
	return g.Streams.Stream(c, func(ctx context.Context) (rest.Event, error) {
		changes := first
		if begun {
			var err error
			if changes, err = g.Maps.Watch(ctx, id, after); err != nil {
				return rest.Event{}, err
			}
			if !changes.Reset && len(changes.Items) == 0 {
				return rest.Event{}, nil
			}
		}
		begun, after = true, changes.Next
		data, err := json.Marshal(changes)
		return rest.Event{ID: changes.Next, Name: "changes", Data: data}, err
	})
}

func (g *Group) shards(c *rest.Call, in *mapPath) (page wire.Page[transfers.ShardView], err error) {
	if err := g.check(); err != nil {
		return page, err
	}
	views, err := g.Maps.Shards(c.Context(), in.Map)
	return wire.PageOf(views, ""), shardProblem(err)
}
