package sharding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/engine"
)

// lanes is how many transfers of a map may be under way at once, whatever its limits.
const lanes = 64

// deadAfter is how long a transfer may be silent before it does not count any more. A step that
// waits or works tells so each minute, but one that has failed is silent until it is tried again: up to an hour in
// the shipped pipeline. What is dead for good, shard.orphans and shard.end free much sooner.
const deadAfter = 2 * time.Hour

// errFull says that a shard takes part in as many transfers as it may.
var errFull = errors.New("no more transfers at once")

// acquire puts a transfer into a free lane of its map, within the limits for its source
// and target, when no other one has to do with the same rows. It finds again what it has put
// there before. The lock document makes two acquisitions at once exclude each other.
func acquire(ctx context.Context, store engine.Documents, node int64, t *engine.ShardTransfer, l layout, perSource, perTarget int, now time.Time) error {
	for {
		lock, err := store.Document(ctx, engine.DocShardTransfer, t.Map+"/lock")
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			return err
		}
		all, err := engine.ReadShardTransfers(ctx, store, t.Map)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(all, func(o engine.ShardTransfer) bool { return o.ID == t.ID }); i >= 0 {
			*t = all[i]
			return nil
		}
		if err := apart(t, all, l, now); err != nil {
			return err
		}
		if err := roomFor(t, all, perSource, perTarget, now); err != nil {
			return err
		}
		if t.Lane = freeLane(t.Map, all); t.Lane == "" {
			return fmt.Errorf("map %s: %d transfers are under way: %w", t.Map, lanes, errFull)
		}
		value, err := json.Marshal(t)
		if err != nil {
			return err
		}
		_, err = store.WriteDocuments(ctx, node, []engine.DocumentWrite{
			{Kind: engine.DocShardTransfer, Name: t.Map + "/lock", Version: lock.Version, Value: []byte("{}")},
			{Kind: engine.DocShardTransfer, Name: t.Lane, Version: engine.AnyVersion, Value: value},
		}, nil)
		if !errors.Is(err, engine.ErrConflict) {
			return err
		}
	}
}

// underWay tells whether a transfer counts.
func underWay(t engine.ShardTransfer, now time.Time) bool {
	return !engine.TransferEnded(t.State) && now.Sub(t.Changed) < deadAfter
}

// apart refuses a transfer while another one is not over that may have the same rows: while
// that is observed, it brings what its target does with them back to its source, and in the
// end it deletes them there, whoever has put them there meanwhile.
func apart(t *engine.ShardTransfer, all []engine.ShardTransfer, l layout, now time.Time) error {
	for _, o := range all {
		if underWay(o, now) && l.overlap(o.Key, t.Key) {
			return fmt.Errorf("map %s: transfer %s of %q is %s; it can be told to finish: %w", t.Map, o.ID, o.Key, o.State, errFull)
		}
	}
	return nil
}

func roomFor(t *engine.ShardTransfer, all []engine.ShardTransfer, perSource, perTarget int, now time.Time) error {
	from, to := 0, 0
	for _, o := range all {
		if !underWay(o, now) {
			continue
		}
		if o.Source == t.Source {
			from++
		}
		if o.Target == t.Target {
			to++
		}
	}
	if from >= perSource {
		return fmt.Errorf("map %s: %d transfers leave shard %s: %w", t.Map, from, t.Source, errFull)
	}
	if to >= perTarget {
		return fmt.Errorf("map %s: %d transfers go to shard %s: %w", t.Map, to, t.Target, errFull)
	}
	return nil
}

// freeLane gives the lane that was never used, or whose transfer ended the longest ago;
// empty when all are in use.
func freeLane(shardMap string, all []engine.ShardTransfer) string {
	used := map[string]engine.ShardTransfer{}
	for _, o := range all {
		used[o.Lane] = o
	}
	oldest := ""
	for i := range lanes {
		name := fmt.Sprintf("%s/%02d", shardMap, i)
		o, ok := used[name]
		if !ok {
			return name
		}
		if engine.TransferEnded(o.State) && (oldest == "" || o.Changed.Before(used[oldest].Changed)) {
			oldest = name
		}
	}
	return oldest
}
