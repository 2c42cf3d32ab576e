package sharding

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/engine/store"
	"procaas/handlers/sharding/transfers"
)

// Transfers are stored in lanes of their map, which are reused. These bound the transfers that have
// begun and not ended, the waiting ones that are shown, and the ended ones that are remembered.
const (
	lanes        = 1024
	waitingLanes = 256
	endedLanes   = 64
)

// deadAfter is how long a transfer may be silent before it no longer counts. A step that waits or
// works reports once a minute. A step that failed is silent until its retry, which takes up to an
// hour in the shipped pipeline. shard.orphans and shard.end free dead transfers much sooner.
const deadAfter = 2 * time.Hour

// A waitError says what a transfer waits for before it begins.
type waitError struct {
	reason string
	ahead  int // number of others that wait for longer
}

// Error implements error.
func (e waitError) Error() string { return e.reason }

func waitsFor(format string, args ...any) error {
	return waitError{reason: fmt.Sprintf(format, args...)}
}

// patience returns how long a transfer waits before it asks again. The first ones of a queue ask often,
// so that a free place is used at once. The others would only load the store.
func (e waitError) patience() time.Duration {
	return min(busyDelay*time.Duration(1+e.ahead/8), lookAgain)
}

// queued counts the transfers that wait for their turn for longer than another one.
func queued(t *transfers.ShardTransfer, all []transfers.ShardTransfer) (n int) {
	for _, o := range all {
		if o.Waits != "" && o.Hours == "" && o.ID != t.ID && !transfers.TransferEnded(o.State) && o.Started.Before(t.Started) {
			n++
		}
	}
	return n
}

// errMoved reports that a key has left the shard that it was to move from later.
var errMoved = errors.New("the key has moved meanwhile")

// A turn says which transfers may begin: as many as a shard allows, and none before its hour.
type turn struct {
	perSource, perTarget int
	hours                error // what it waits for until its hour; nil if it is the hour
}

// overlapping reports whether two placements may have rows in common.
type overlapping func(a, b string) bool

// acquire puts a transfer into a free lane of its map if it is its turn and no other transfer has
// the same rows. A second call finds its lane again. A transfer that cannot begin waits visibly for
// operators and blocks nothing. The lock document makes concurrent calls exclude each other.
func acquire(ctx context.Context, db store.Documents, node int64, t *transfers.ShardTransfer, overlap overlapping, by turn,
	now time.Time,
) error {
	for {
		lock, err := db.Document(ctx, transfers.DocShardTransfer, transfers.ShardLock(t.Map))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		all, err := transfers.ReadShardTransfers(ctx, db, t.Map)
		if err != nil {
			return err
		}
		var was transfers.ShardTransfer
		if i := slices.IndexFunc(all, func(o transfers.ShardTransfer) bool { return o.ID == t.ID }); i >= 0 {
			was = all[i]
		}
		if was.ID != "" && (was.Waits == "" || transfers.TransferEnded(was.State)) {
			*t = was
			return nil
		}
		next := *t
		writes, waits, err := enter(&next, was, all, overlap, by, now)
		if err == nil && len(writes) > 0 {
			writes = append(writes, store.DocumentWrite{
				Kind: transfers.DocShardTransfer, Name: transfers.ShardLock(t.Map), Version: lock.Version,
				Value: []byte("{}"),
			})
			_, err = db.WriteDocuments(ctx, node, writes, nil)
		}
		switch {
		case errors.Is(err, store.ErrConflict):
			continue
		case err != nil:
			return err
		}
		*t = next
		if w, ok := errors.AsType[waitError](waits); ok {
			w.ahead = queued(t, all)
			return w
		}
		return waits
	}
}

// enter returns what to write for a transfer that begins, or waits for the returned reason. was is
// its stored state. It returns no writes if nothing is new.
func enter(t *transfers.ShardTransfer, was transfers.ShardTransfer, all []transfers.ShardTransfer, overlap overlapping, by turn,
	now time.Time,
) (writes []store.DocumentWrite, waits, err error) {
	lane := freeLane(t.Map, lanes, all)
	waits = mayBegin(t, all, overlap, by, now)
	if waits == nil && lane == "" {
		waits = waitsFor("it waits for its turn: %d transfers of the map have not ended", lanes)
	}
	if was.ID != "" {
		t.Started = was.Started
	}
	switch {
	case was.Hours != "" && was.Source != t.Source: // somebody has decided otherwise since
		waits = fmt.Errorf("map %s: key %q was to leave shard %s, and lives on %s now: %w", t.Map, t.Key, was.Source, t.Source, errMoved)
		t.Lane, t.State, t.Error = was.Lane, transfers.TransferFailed, waits.Error()
	case waits == nil:
		t.Lane, t.Waits = lane, ""
		if was.Lane != "" {
			writes = append(writes, store.DocumentWrite{
				Kind: transfers.DocShardTransfer, Name: was.Lane, Version: store.AnyVersion,
				Value: []byte("{}"),
			})
		}
	case was.Waits == waits.Error():
		return nil, waits, nil
	default:
		t.Lane = cmp.Or(was.Lane, freeLane(t.Map+"/wait", waitingLanes, all))
		if t.Lane == "" {
			return nil, waits, nil // too many wait to show all of them
		}
		t.Waits = waits.Error()
	}
	value, err := json.Marshal(t)
	return append(writes, store.DocumentWrite{Kind: transfers.DocShardTransfer, Name: t.Lane, Version: store.AnyVersion, Value: value}),
		waits, err
}

// mayBegin returns why a transfer must wait, or nil.
func mayBegin(t *transfers.ShardTransfer, all []transfers.ShardTransfer, overlap overlapping, by turn, now time.Time) error {
	if by.hours != nil {
		return by.hours
	}
	if err := apart(t, all, overlap); err != nil {
		return err
	}
	return roomFor(t, all, by, now)
}

// apart refuses a transfer while an unfinished one may have the same rows. While that one is
// observed, it copies changes on its target back to its source. In the end it deletes these rows
// there, even if another transfer has written them.
func apart(t *transfers.ShardTransfer, all []transfers.ShardTransfer, overlap overlapping) error {
	for _, o := range all {
		if o.Waits == "" && !transfers.TransferEnded(o.State) && overlap(o.Key, t.Key) {
			return waitsFor("it waits for transfer %s of %q, which is %s and can be told to finish or to cancel", o.ID, o.Key, o.State)
		}
	}
	return nil
}

// roomFor refuses a transfer while its shards take part in too many. An observed transfer costs
// almost nothing, and a silent one is not working, so these do not count.
func roomFor(t *transfers.ShardTransfer, all []transfers.ShardTransfer, by turn, now time.Time) error {
	from, to := 0, 0
	for _, o := range all {
		if o.Waits != "" || transfers.TransferEnded(o.State) || o.State == transfers.TransferObserving || now.Sub(o.Changed) >= deadAfter {
			continue
		}
		if o.Source == t.Source {
			from++
		}
		if o.Target == t.Target {
			to++
		}
	}
	if from >= by.perSource {
		return waitsFor("it waits for its turn: %d transfers leave shard %s", from, t.Source)
	}
	if to >= by.perTarget {
		return waitsFor("it waits for its turn: %d transfers go to shard %s", to, t.Target)
	}
	return nil
}

// freeLane returns the lane of the transfer that ended first, if enough are remembered, or else an
// unused one. It is empty if all are in use.
func freeLane(prefix string, most int, all []transfers.ShardTransfer) string {
	used := map[string]transfers.ShardTransfer{}
	for _, o := range all {
		used[o.Lane] = o
	}
	oldest, unused, ended := "", "", 0
	for i := range most {
		name := fmt.Sprintf("%s/%02d", prefix, i)
		switch o, ok := used[name]; {
		case !ok && unused == "":
			unused = name
		case ok && transfers.TransferEnded(o.State):
			ended++
			if oldest == "" || o.Changed.Before(used[oldest].Changed) {
				oldest = name
			}
		}
	}
	if unused == "" || ended >= endedLanes {
		return oldest
	}
	return unused
}
