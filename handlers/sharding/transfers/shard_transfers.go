package transfers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/store"
)

// This file shows transfers between shards, and lets operators steer them. Package sharding does
// the work. Both communicate through documents, so any node may serve the calls.

// These are the kinds of documents of transfers. They are named by the map and a lane. A map has a
// fixed number of lanes. What was in a lane before is in the history of runs.
const (
	DocShardTransfer = "shard-transfer"
	DocShardOrder    = "shard-order"
)

// These are the states of a transfer.
const (
	TransferWaiting    = "waiting"     // for its turn, or for its hours
	TransferRunning    = "running"     // on its way to the target
	TransferPaused     = "paused"      // by an operator
	TransferObserving  = "observing"   // it has switched, and can be rolled back
	TransferCleaning   = "cleaning"    // it deletes what is left over
	TransferDone       = "done"        // the target has the key
	TransferRolledBack = "rolled-back" // the source has the key again
	TransferCancelled  = "cancelled"   // the source has kept the key
	TransferFailed     = "failed"      // the source has kept the key; see the error
)

// TransferEnded reports whether a state is final.
func TransferEnded(state string) bool {
	return slices.Contains([]string{TransferDone, TransferRolledBack, TransferCancelled, TransferFailed}, state)
}

// These are operators' orders.
const (
	OrderPause    = "pause"
	OrderResume   = "resume"
	OrderCancel   = "cancel"
	OrderRollback = "rollback"
	OrderFinish   = "finish" // ends the observation
)

// A ShardTransfer is the move of a key from one shard to another.
type ShardTransfer struct {
	ID     string `json:"id" doc:"The transfer."`
	Map    string `json:"map" doc:"The shard map."`
	Key    string `json:"key" doc:"The placement that moves."`
	Source string `json:"source" doc:"The shard that has the key, or had it."`
	Target string `json:"target" doc:"The target shard."`
	Method string `json:"method" doc:"stream, or lock-copy-switch."`
	Run    string `json:"run" doc:"The run that does it."`
	Lane   string `json:"lane" doc:"Where it is kept: the map and a number."`

	DeadlineMS int64 `json:"deadline_ms,omitempty" doc:"How long the key may be frozen before the source thaws by itself, in milliseconds."`
	PingMS     int64 `json:"ping_ms,omitempty" doc:"The highest latency of the stream at which the key may be frozen, in milliseconds."`
	LockMS     int64 `json:"lock_ms,omitempty" doc:"How long the freeze waits for writers, in milliseconds."`
	Rate       int64 `json:"rate,omitempty" doc:"The highest speed of the copy in bytes per second; 0 is no limit."`

	Size int64 `json:"size,omitempty" doc:"An estimate of the bytes of the key before the copy; 0 if unknown."`

	OneWay bool `json:"one_way,omitempty" doc:"true if nothing is kept for a rollback, so it needs no replication slot of the target."`

	State    string    `json:"state" doc:"waiting, running, paused, observing, cleaning, done, rolled-back, cancelled or failed."`
	Step     string    `json:"step" doc:"The current or last step."`
	Rows     int64     `json:"rows" doc:"Rows that this step has handled."`
	Total    int64     `json:"total" doc:"An estimate of the rows of this step; 0 if unknown."`
	Bytes    int64     `json:"bytes" doc:"Bytes that were copied."`
	Lag      int64     `json:"lag" doc:"Bytes of the source's log that the target has not applied yet."`
	Percent  float64   `json:"percent" doc:"How much of the step is done."`
	Switched bool      `json:"switched" doc:"true if the map names the target."`
	Rollback string    `json:"rollback,omitempty" doc:"possible, or the reason why it is not."`
	WindowMS float64   `json:"window_ms" doc:"How long writes of the key were blocked, in milliseconds."`
	Next     int64     `json:"epoch" doc:"The epoch of the key after the switch; 0 before."`
	Observe  time.Time `json:"observe_until,omitzero" doc:"Until when it may be rolled back."`
	Hours    string    `json:"hours,omitempty" doc:"The hours of the day at which it may start; empty for any."`
	Waits    string    `json:"waits,omitempty" doc:"What it waits for before it starts: an hour, its turn, or another transfer. Empty after the start."`
	Error    string    `json:"error,omitempty" doc:"The last error."`
	Differed int       `json:"differed,omitempty" doc:"How often the copy differed from the source. Each time it begins again, at most three times."`
	Started  time.Time `json:"started" doc:"When it began."`
	Changed  time.Time `json:"changed" doc:"When this was last written."`
}

// A ShardOrder is an operator's order for a transfer.
type ShardOrder struct {
	Transfer string `json:"transfer"`
	Want     string `json:"want"`
}

// ErrShardOrder reports that a transfer cannot follow an order.
var ErrShardOrder = errors.New("the transfer cannot do that")

// ReadShardTransfers lists the transfers in the lanes of a map, or of all maps if it is empty.
// Those that began last come first.
func ReadShardTransfers(ctx context.Context, store store.Documents, shardMap string) ([]ShardTransfer, error) {
	prefix := ""
	if shardMap != "" {
		prefix = shardMap + "/"
	}
	docs, err := store.DocumentsOf(ctx, DocShardTransfer, prefix)
	if err != nil {
		return nil, err
	}
	out := []ShardTransfer{}
	for _, d := range docs {
		var t ShardTransfer
		if err := json.Unmarshal(d.Value, &t); err != nil {
			return nil, fmt.Errorf("transfer in lane %s: %w", d.Name, err)
		}
		if t.ID != "" {
			t.Changed = d.Changed
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b ShardTransfer) int { return b.Started.Compare(a.Started) })
	return out, nil
}

// ReadShardTransfer reads a transfer by its id. The error is [store.ErrNotFound] if no lane has it.
func ReadShardTransfer(ctx context.Context, db store.Documents, id string) (ShardTransfer, error) {
	all, err := ReadShardTransfers(ctx, db, "")
	if err != nil {
		return ShardTransfer{}, err
	}
	if i := slices.IndexFunc(all, func(t ShardTransfer) bool { return t.ID == id }); i >= 0 {
		return all[i], nil
	}
	return ShardTransfer{}, fmt.Errorf("transfer %q: %w", id, store.ErrNotFound)
}

// Transfers shows and steers transfers between shards.
type Transfers struct {
	store  store.Documents
	bundle func() *tree.Bundle // returns the current definition
}

// NewTransfers makes a Transfers for the transfers in a store. bundle returns the current definition.
func NewTransfers(db store.Documents, bundle func() *tree.Bundle) *Transfers {
	return &Transfers{db, bundle}
}

// Bundle returns the current definition.
func (a *Transfers) Bundle() *tree.Bundle { return a.bundle() }

// ShardTransfers lists the transfers in progress of a map, and the latest ended ones.
func (a *Transfers) ShardTransfers(ctx context.Context, shardMap string) ([]ShardTransfer, error) {
	return ReadShardTransfers(ctx, a.store, shardMap)
}

// ShardLock names the document that every process also writes when it lets a transfer of a map
// begin, or prevents that.
func ShardLock(shardMap string) string { return shardMap + "/lock" }

// OrderShardTransfer passes an operator's order to a transfer. The order interrupts the current step,
// which undoes an unfinished cutover, and the step then follows the order. A waiting transfer has
// no step: it is cancelled at once.
func (a *Transfers) OrderShardTransfer(ctx context.Context, id, want string, by store.Actor) (ShardTransfer, error) {
	for {
		t, err := ReadShardTransfer(ctx, a.store, id)
		if err != nil {
			return t, err
		}
		if err := t.may(want); err != nil {
			return t, err
		}
		order, err := json.Marshal(ShardOrder{Transfer: id, Want: want})
		if err != nil {
			return t, err
		}
		writes := []store.DocumentWrite{{Kind: DocShardOrder, Name: t.Lane, Version: store.AnyVersion, Value: order}}
		if t.Waits != "" {
			if writes, err = a.endWaiting(ctx, t); err != nil {
				return t, err
			}
		}
		_, err = a.store.WriteDocuments(ctx, 0, writes, []store.Audited{{Kind: store.AuditTransfer, Name: id, By: by, After: order}})
		if !errors.Is(err, store.ErrConflict) {
			return t, err
		}
	}
}

// endWaiting returns the writes that cancel a waiting transfer. They conflict if it begins
// meanwhile.
func (a *Transfers) endWaiting(ctx context.Context, t ShardTransfer) ([]store.DocumentWrite, error) {
	lock, err := a.store.Document(ctx, DocShardTransfer, ShardLock(t.Map))
	if err != nil {
		return nil, err
	}
	lane, err := a.store.Document(ctx, DocShardTransfer, t.Lane)
	if err != nil {
		return nil, err
	}
	var now ShardTransfer
	if err := json.Unmarshal(lane.Value, &now); err != nil {
		return nil, fmt.Errorf("transfer in lane %s: %w", t.Lane, err)
	}
	if now.ID != t.ID || now.Waits == "" {
		return nil, store.ErrConflict // it has begun, and another one has its place
	}
	now.State = TransferCancelled
	value, err := json.Marshal(now)
	return []store.DocumentWrite{
		{Kind: DocShardTransfer, Name: ShardLock(t.Map), Version: lock.Version, Value: []byte("{}")},
		{Kind: DocShardTransfer, Name: t.Lane, Version: lane.Version, Value: value},
	}, err
}

// ShardChanged makes the audit record of a change of a shard or a placement.
func ShardChanged(shardMap, what string, after any, by store.Actor) (store.Audited, error) {
	text, err := json.Marshal(after)
	return store.Audited{Kind: store.AuditShard, Name: shardMap + "/" + what, By: by, After: text}, err
}

// may returns why a transfer cannot follow an order, or nil.
func (t ShardTransfer) may(want string) error {
	no := func(why string) error {
		return fmt.Errorf("%w: transfer %s of key %s is %s: %s", ErrShardOrder, t.ID, t.Key, t.State, why)
	}
	switch {
	case TransferEnded(t.State):
		return no("it has ended")
	case t.Waits != "" && want != OrderCancel:
		return no("it has not begun: " + t.Waits + "; it can only be cancelled")
	case want == OrderPause && t.Switched:
		return no("the map names the target already; roll it back, or let it finish")
	case want == OrderCancel && t.Switched:
		return no("the map names the target already; roll it back instead")
	case (want == OrderRollback || want == OrderFinish) && t.State != TransferObserving:
		return no("only one that has switched and is observed can do that")
	case want == OrderRollback && t.Rollback != "possible":
		return no("it cannot be rolled back: " + t.Rollback)
	case !slices.Contains([]string{OrderPause, OrderResume, OrderCancel, OrderRollback, OrderFinish}, want):
		return no("want pause, resume, cancel, rollback or finish")
	}
	return nil
}
