package records

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"procaas/engine/clock"
	"procaas/engine/model"
	"procaas/engine/store"
)

// This file erases all data of a key.

// An Erasure says which key to erase, and how.
type Erasure struct {
	Flow, Key string
	Cancel    bool // cancels what is unfinished, and waits for its end
	Preview   bool // changes nothing
	Vacuum    bool // writes the file of the store anew; see [store.Eraser]
}

// An ErasureReceipt is the result of an erasure, or its preview. It does not name the key.
type ErasureReceipt struct {
	Preview    bool           `json:"preview" doc:"true if nothing was changed."`
	Flow       string         `json:"flow"`
	KeyHash    string         `json:"key_hash" doc:"The SHA-256 of the key, in hexadecimal."`
	By         string         `json:"by" doc:"The actor, as in the audit."`
	Reason     string         `json:"reason"`
	Began      time.Time      `json:"began"`
	Ended      time.Time      `json:"ended"`
	Unfinished int            `json:"unfinished" doc:"Only of a preview: the runs and tasks that must end or be cancelled first."`
	Cancelled  int            `json:"cancelled" doc:"How many runs were cancelled."`
	Removed    map[string]int `json:"removed" doc:"How many rows of each kind were removed, or would be. A preview does not count ids of events."`
	Remains    []string       `json:"remains" doc:"Where copies of the data may remain, and until when."`
}

// An UnfinishedError refuses to erase a key that has something to do.
type UnfinishedError struct{ Runs, Tasks int }

// Error implements error.
func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("unfinished runs: %d, unfinished tasks: %d; erase removes neither", e.Runs, e.Tasks)
}

// ErrNoEraser reports that the store cannot erase.
var ErrNoEraser = errors.New("the store cannot erase keys")

// cancelWait is how long an erasure waits for the end of what it has cancelled.
const cancelWait = 30 * time.Second

// erasePause is the pause between two looks at what has not ended.
const erasePause = 100 * time.Millisecond

// Erase removes all data of a key from the store. It refuses what is unfinished with an [*UnfinishedError], unless it cancels that. An
// event that comes meanwhile begins the key anew. The audit has a record of the beginning and the receipt of the end. After an
// error, repeat it: it removes the rest. The error is [store.ErrNotFound] if the flow is unknown and has no data.
func (o *Runs) Erase(ctx context.Context, e Erasure, by store.Actor) (r ErasureReceipt, err error) {
	db := o.Store.Eraser
	if db == nil {
		return r, ErrNoEraser
	}
	sum := sha256.Sum256([]byte(e.Key))
	r = ErasureReceipt{
		Preview: e.Preview, Flow: e.Flow, KeyHash: hex.EncodeToString(sum[:]), By: by.Name, Reason: by.Reason, Began: time.Now().UTC(),
		Removed: map[string]int{}, Remains: []string{},
	}
	of := store.Erasing{Flow: e.Flow, Key: e.Key, Cancel: e.Cancel, Pipelines: o.pipelinesOf(e.Flow)}
	there, err := o.measure(ctx, of, r.Removed)
	if err != nil {
		return r, err
	}
	switch {
	case len(r.Removed) == 0 && there == (UnfinishedError{}) && len(of.Pipelines) == 0:
		return r, fmt.Errorf("flow %s: %w", e.Flow, store.ErrNotFound)
	case e.Preview:
		r.Unfinished, r.Ended = there.Runs+there.Tasks, time.Now().UTC()
		return r, nil
	case there != (UnfinishedError{}) && !e.Cancel:
		return r, &there
	}
	clear(r.Removed)
	if err := o.noteErasure(ctx, &r, map[string]any{"began": true, "cancel": e.Cancel}, by); err != nil {
		return r, err
	}
	if e.Cancel {
		if err := o.cancelKey(ctx, of, &r, by); err != nil {
			return r, err
		}
	}
	if err := o.erase(ctx, of, &r, by); err != nil {
		return r, err
	}
	if r.Remains, err = db.Scrub(ctx, e.Vacuum); err != nil {
		return r, err
	}
	_, archive, err := readArchiving(ctx, o.Store.Documents)
	if err != nil {
		return r, err
	}
	if archive.Address != "" {
		r.Remains = append(r.Remains, "the archive "+archive.Address+": runs of the key that have left the store before; remove them there")
	}
	r.Ended = time.Now().UTC()
	return r, o.noteErasure(ctx, &r, r, by)
}

// pipelinesOf lists the pipelines of a flow.
func (o *Runs) pipelinesOf(flow string) (ids []string) {
	for _, p := range o.Library.Present().Bundle.Pipelines {
		if p.Flow == flow || p.Flow == "" && p.ID == flow {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// measure counts what there is of a key.
func (o *Runs) measure(ctx context.Context, of store.Erasing, counts map[string]int) (there UnfinishedError, err error) {
	d, err := o.Store.Eraser.KeyData(ctx, of.Flow, of.Key)
	if err != nil {
		return there, fmt.Errorf("count the data of a key: %w", err)
	}
	addCounts(counts, d)
	of.Preview = true
	there.Runs = d.Unfinished
	there.Tasks, err = o.eraseParts(ctx, of, counts)
	return there, err
}

// addCounts adds what a store has removed or has.
func addCounts(to map[string]int, d store.KeyData) {
	for kind, n := range map[string]int{"runs": d.Ended, "failed_runs": d.Failed, "states": d.Entities, "event_ids": d.Events} {
		if n > 0 {
			to[kind] += n
		}
	}
}

// eraseParts lets the add-ons erase. It returns how much they have that is unfinished.
func (o *Runs) eraseParts(ctx context.Context, of store.Erasing, counts map[string]int) (unfinished int, err error) {
	for _, part := range o.Erasers {
		e, err := part(ctx, of)
		for kind, n := range e.Counts {
			if n > 0 {
				counts[kind] += n
			}
		}
		unfinished += e.Unfinished
		if err != nil {
			return unfinished, fmt.Errorf("erase a key: %w", err)
		}
	}
	return unfinished, nil
}

// cancelKey cancels what is unfinished, and waits for its end. Tasks that wait go first, so that they make no runs.
func (o *Runs) cancelKey(ctx context.Context, of store.Erasing, r *ErasureReceipt, by store.Actor) error {
	asked := map[string]bool{}
	for began := time.Now(); ; {
		held, err := o.eraseParts(ctx, of, r.Removed)
		if err != nil {
			return err
		}
		live, _, err := o.list(ctx, store.RunFilter{Flow: of.Flow, Key: of.Key, Live: true, Limit: 1000})
		if err != nil {
			return err
		}
		left := UnfinishedError{Tasks: held}
		for _, run := range live {
			if run.Status.Ended() { // failed runs are erased as they are
				continue
			}
			left.Runs++
			if asked[run.ID] {
				continue
			}
			asked[run.ID] = true
			err := o.cancel(ctx, run.ID, by)
			switch {
			case err == nil:
				r.Cancelled++
			case !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrUndoing):
				return fmt.Errorf("cancel run %s: %w", run.ID, err)
			}
		}
		o.Node.Nudge()
		if left == (UnfinishedError{}) {
			return nil
		}
		if time.Since(began) > cancelWait {
			return &left
		}
		if !clock.Pause(ctx, erasePause) {
			return ctx.Err()
		}
	}
}

// erase removes what there is, when nothing is unfinished. Values that a version in the shadow has shown to differ go with the runs.
func (o *Runs) erase(ctx context.Context, of store.Erasing, r *ErasureReceipt, by store.Actor) error {
	held, err := o.eraseParts(ctx, of, r.Removed)
	if err == nil && held > 0 {
		err = &UnfinishedError{Tasks: held}
	}
	if err != nil {
		return err
	}
	gone, err := o.Store.Eraser.EraseKey(ctx, of.Flow, of.Key)
	addCounts(r.Removed, gone)
	if errors.Is(err, store.ErrConflict) {
		d, failed := o.Store.Eraser.KeyData(ctx, of.Flow, of.Key)
		return errors.Join(&UnfinishedError{Runs: max(1, d.Unfinished)}, failed)
	}
	if err != nil {
		return err
	}
	values, err := o.ForgetValues(ctx, func(run string) (bool, error) {
		_, err := o.Store.Runs.Run(ctx, run)
		if errors.Is(err, store.ErrNotFound) {
			return true, nil
		}
		return false, err
	}, store.Audited{Kind: store.AuditErase, Name: erasureName(r), By: by})
	if values > 0 {
		r.Removed["shadow_values"] += values
	}
	return err
}

// erasureName is what the audit calls a key.
func erasureName(r *ErasureReceipt) string { return r.Flow + "/" + r.KeyHash }

func (o *Runs) noteErasure(ctx context.Context, r *ErasureReceipt, after any, by store.Actor) error {
	_, err := o.Store.Documents.WriteDocuments(ctx, 0, nil, []store.Audited{{
		Kind: store.AuditErase, Name: erasureName(r), By: by, After: model.EncodeJSON(after),
	}})
	if err != nil {
		return fmt.Errorf("note an erasure in the audit: %w", err)
	}
	return nil
}
