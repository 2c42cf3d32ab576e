package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfers"
)

// ShardMoves chooses keys that should move, and their target shards. It changes nothing: use emit
// with for-each to start the transfers.
//
// The response has the fields moves and homeless. A move has map, key, source, target, estimates of
// its rows and of its size in bytes, and id. The same move has the same id all day, and another one
// after each request to drain the shard. Transfers that wait or run count as if they had ended.
// homeless lists shards whose keys no shard can take, with map, shard and reason. No transfer from or
// to a shard is chosen while shard check finds an error in its tables.
//
//	id: choose
//	shard.moves: {reason: usage, at: 0.85, until: 0.8}
type ShardMoves struct {
	tool

	// Map is the shard map. Its default is all maps.
	Map string `yaml:"map"`

	// Reason says which keys move. usage moves keys off shards that are too full. load moves some recently used keys
	// off shards that are too busy. drain moves all keys off drained shards. idle moves keys that nobody used for some
	// time to another class. busy does so with recently used keys.
	Reason string `yaml:"reason" required:"true" enum:"usage,load,drain,idle,busy"`

	// At is the usage from which keys leave a shard, for the reason usage. For load it is the share of busy connections.
	At float64 `yaml:"at" default:"0.85" min:"0" max:"1"`

	// Until is the usage or load at which keys stop leaving a shard. Choose it below the open-at of
	// shard.close, so that the shard opens again.
	Until float64 `yaml:"until" default:"0.8" min:"0" max:"1"`

	// Fill is the usage or load up to which a target takes keys. The default 0 means that of until.
	Fill float64 `yaml:"fill" default:"0" min:"0" max:"1"`

	// Smallest is the lowest quantile by rows of the keys that may move for the reason usage.
	// Moving small keys helps little.
	Smallest float64 `yaml:"smallest" default:"0.25" min:"0" max:"1"`

	// Largest is the highest quantile. Large keys take long to copy.
	Largest float64 `yaml:"largest" default:"0.75" min:"0" max:"1"`

	// From is the class of shards that idle or busy keys leave.
	From string `yaml:"from"`

	// To is the class that they move to. For other reasons keys stay in their class.
	To string `yaml:"to"`

	// After is how long nobody used a key, for the reason idle. For busy and load, somebody used
	// the key within this time.
	After time.Duration `yaml:"after" default:"720h" min:"1m"`

	// Limit is the highest number of moves from one shard that have not ended. Transfers that wait or
	// run already count, those that are observed for a rollback do not.
	Limit int `yaml:"limit" default:"20" min:"1" max:"1000"`
}

// A moveTarget is a possible target, with what it has already been assigned.
type moveTarget struct {
	view  transfers.ShardView
	extra int64 // bytes of the assigned moves
	busy  float64

	checked, unfit bool // whether a preflight has checked its tables, and has refused them
}

// fit checks the tables of a target once.
func (t *moveTarget) fit(ctx context.Context, m *shardmap.Map) bool {
	if !t.checked {
		t.checked, t.unfit = true, unfit(ctx, m, t.view.ID) != ""
	}
	return !t.unfit
}

func (t *moveTarget) usage() float64 {
	return float64(t.view.Used+t.extra) / float64(max(t.view.Capacity, 1))
}

// filled returns how full a target is, by the measure of the reason.
func (h *ShardMoves) filled(t *moveTarget) float64 {
	if h.Reason == "load" {
		return max(t.view.Load+t.busy, t.usage()) // a full shard is no relief
	}
	return t.usage()
}

// Handle implements [engine.Handler].
func (h *ShardMoves) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	if (h.Reason == "idle" || h.Reason == "busy") && (h.From == "" || h.To == "") {
		return model.Result{}, model.Permanent(fmt.Errorf("the reason %s needs from and to, classes of shards", h.Reason))
	}
	maps, err := h.maps(h.Map)
	if err != nil {
		return model.Result{}, err
	}
	moves, homeless := []any{}, []any{}
	for _, m := range maps {
		views, err := m.ShardViews(ctx, "")
		if err != nil {
			return model.Result{}, err
		}
		targets := make([]*moveTarget, len(views))
		for i, v := range views {
			targets[i] = &moveTarget{view: v}
		}
		moving, err := underWay(ctx, c, m.ID)
		if err != nil {
			return model.Result{}, err
		}
		for _, t := range targets {
			t.expect(moving, targets)
		}
		for _, v := range views {
			if !h.leaves(v) {
				continue
			}
			if v.Placements == 0 {
				continue
			}
			reason := unfit(ctx, m, v.ID)
			var from []any
			if reason == "" {
				if from, err = h.fromShard(ctx, c, m, v, targets, moving); err != nil {
					return model.Result{}, err
				}
				moves = append(moves, from...)
				if len(from) == 0 && h.target(ctx, m, v, targets) == nil {
					reason = "no shard of the class is open for transfers, below fill, and without errors of shard check"
				}
			}
			if reason != "" {
				homeless = append(homeless, map[string]any{"map": m.ID, "shard": v.ID, "reason": reason})
			}
		}
	}
	return model.Result{Response: map[string]any{"moves": moves, "homeless": homeless}}, nil
}

// leaves reports whether keys should leave a shard.
func (h *ShardMoves) leaves(v transfers.ShardView) bool {
	switch h.Reason {
	case "usage":
		return v.Usage >= h.At
	case "load":
		return v.Load >= h.At
	case "drain":
		return v.Draining != ""
	}
	return v.Class == h.From
}

// unfit returns why no transfer from or to a shard may begin, or nothing.
func unfit(ctx context.Context, m *shardmap.Map, shard string) string {
	found, err := m.TableErrors(ctx, shard)
	if err != nil {
		found = append(found, "shard "+shard+" could not be checked: "+err.Error())
	}
	return strings.Join(found, "; ")
}

// target returns the emptiest shard that may take keys of another one, or nil.
func (h *ShardMoves) target(ctx context.Context, m *shardmap.Map, source transfers.ShardView, targets []*moveTarget) *moveTarget {
	class := source.Class
	if h.Reason == "idle" || h.Reason == "busy" {
		class = h.To
	}
	var best *moveTarget
	for _, t := range targets {
		if t.view.ID == source.ID || t.view.Class != class || !t.view.Transfer || t.view.Draining != "" ||
			h.filled(t) >= cmp.Or(h.Fill, h.Until) {
			continue
		}
		if (best == nil || h.filled(t) < h.filled(best)) && t.fit(ctx, m) {
			best = t
		}
	}
	return best
}

// fromShard chooses the moves from one shard.
func (h *ShardMoves) fromShard(ctx context.Context, c *engine.Call, m *shardmap.Map, source transfers.ShardView,
	targets []*moveTarget, moving []transfers.ShardTransfer,
) ([]any, error) {
	keys, bytesPerRow, err := h.candidates(ctx, c, m, source, moving)
	if err != nil {
		return nil, err
	}
	var moves []any
	left, busy, room := source.Used, source.Load, h.Limit
	for _, t := range moving {
		if t.Source == source.ID {
			left -= sizeOf(t, source)
			if t.State != transfers.TransferObserving {
				room--
			}
		}
	}
	var share float64 // share of the load of one recently used key
	if h.Reason == "load" {
		used, err := shardmap.Usage{Map: m}.UsedSince(ctx, source.ID, c.Now.Add(-h.After))
		if err != nil {
			return nil, err
		}
		share = source.Load / float64(max(used, 1))
	}
	for _, k := range keys {
		if len(moves) >= room || h.Reason == "usage" && float64(left) < h.Until*float64(source.Capacity) || h.Reason == "load" &&
			busy < h.Until {
			break
		}
		t := h.target(ctx, m, source, targets)
		if t == nil {
			break
		}
		size := int64(float64(k.Rows) * bytesPerRow)
		t.extra += size
		left -= size
		t.busy += share
		busy -= share
		moves = append(moves, map[string]any{
			"map": m.ID, "key": k.Key, "source": source.ID, "target": t.view.ID, "rows": int(k.Rows), "size": int(size),
			"id": strings.Join([]string{m.ID, k.Key, t.view.ID, h.request(source, c.Now)}, "/"),
		})
	}
	return moves, nil
}

// request names what the moves from a shard are for, so that a move that is chosen again meanwhile is
// the same one: the day, and for a drain also the operator's request.
func (h *ShardMoves) request(source transfers.ShardView, now time.Time) string {
	day := now.UTC().Format(time.DateOnly)
	if h.Reason != "drain" || source.DrainAsked == nil {
		return day
	}
	return day + "/" + strconv.FormatInt(source.DrainAsked.UnixMicro(), 36)
}

// candidates lists the keys of a shard that may move, in order of preference, and how many bytes a
// row takes in all tables.
func (h *ShardMoves) candidates(ctx context.Context, c *engine.Call, m *shardmap.Map,
	source transfers.ShardView, moving []transfers.ShardTransfer,
) ([]shardmap.KeySize, float64, error) {
	taken := map[string]bool{}
	for _, t := range moving {
		taken[t.Key] = true
	}
	free := func(k shardmap.KeySize) bool { return !taken[k.Key] }
	if h.Reason == "usage" && m.Declared.Strategy == "directory" && len(m.Declared.Tables) > 0 {
		sizes, rows, err := shardmap.Usage{Map: m}.Sizes(ctx, source.ID, m.Declared.Tables[0])
		if err != nil {
			return nil, 0, err
		}
		all, err := shardmap.Usage{Map: m}.Free(ctx, source.ID, medium(sizes, h.Smallest, h.Largest))
		return keep(all, free), float64(source.Used) / float64(max(rows, 1)), err
	}
	reason := h.Reason
	switch reason {
	case "idle", "busy":
	case "load":
		reason = "busy"
	default:
		reason = ""
	}
	keys, err := shardmap.Usage{Map: m}.Movable(ctx, source.ID, reason, c.Now.Add(-h.After), h.Limit+len(moving))
	var all []shardmap.KeySize
	for _, k := range keys {
		all = append(all, shardmap.KeySize{Key: k, Rows: 1})
	}
	return keep(all, free), float64(source.Used) / float64(max(source.Placements, 1)), err
}

func keep(all []shardmap.KeySize, ok func(shardmap.KeySize) bool) []shardmap.KeySize {
	return slices.DeleteFunc(all, func(k shardmap.KeySize) bool { return !ok(k) })
}

// underWay lists the transfers of a map that have not ended.
func underWay(ctx context.Context, c *engine.Call, shardMap string) ([]transfers.ShardTransfer, error) {
	if c.Documents == nil {
		return nil, nil
	}
	all, err := transfers.ReadShardTransfers(ctx, c.Documents, shardMap)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	return slices.DeleteFunc(all, func(t transfers.ShardTransfer) bool { return transfers.TransferEnded(t.State) }), nil
}

// sizeOf estimates how many bytes a transfer moves: an average key of its source, if nobody has
// estimated it.
func sizeOf(t transfers.ShardTransfer, source transfers.ShardView) int64 {
	return cmp.Or(t.Size, t.Bytes, source.Used/max(source.Placements, 1))
}

// expect adds what transfers bring to a target. Those that have switched were measured there.
func (t *moveTarget) expect(moving []transfers.ShardTransfer, all []*moveTarget) {
	for _, one := range moving {
		i := slices.IndexFunc(all, func(s *moveTarget) bool { return s.view.ID == one.Source })
		if one.Target == t.view.ID && !one.Switched && i >= 0 {
			t.extra += sizeOf(one, all[i].view)
		}
	}
}

// medium returns the keys between two quantiles of their sizes, largest first.
func medium(sizes []shardmap.KeySize, smallest, largest float64) []shardmap.KeySize {
	slices.SortFunc(sizes, func(a, b shardmap.KeySize) int {
		if a.Rows != b.Rows {
			return int(min(max(a.Rows-b.Rows, -1), 1))
		}
		return strings.Compare(a.Key, b.Key)
	})
	first, last := int(smallest*float64(len(sizes))), int(largest*float64(len(sizes))+0.5)
	out := slices.Clone(sizes[min(first, len(sizes)):max(min(last, len(sizes)), min(first, len(sizes)))])
	slices.Reverse(out)
	return out
}
