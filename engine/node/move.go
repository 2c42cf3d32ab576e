package node

import (
	"context"
	"errors"
	"time"

	"procaas/engine/clock"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/store"
)

// move asks the run to move to another definition. It may be called several times.
func (j *job) move(bundle string) {
	if reason, ok := model.UndoReason(bundle); ok {
		if j.stopping.Swap(&reason) == nil {
			j.pass.Wake()
		}
		return
	}
	if old := j.moving.Swap(&bundle); old == nil || *old != bundle {
		j.pass.Wake()
	}
}

// moves reports whether the run is about to move to another definition, so that nothing more
// starts.
func (j *job) moves() bool {
	return j.moving.Load() != nil && j.stopping.Load() == nil && !j.run.Status().Ended()
}

// putBack releases the run, with the definition that it continues with: the requested one if it
// fits, otherwise its own. It returns false if that cannot be decided now. The next beat asks
// again.
func (j *job) putBack() bool {
	to := *j.moving.Load()
	pinned, err := j.fits(to, j.run.Checkpoint())
	if err != nil {
		j.at("").Warn("definition cannot be read, so the run is not moved yet", "bundle", to, "error", err)
		j.moving.Store(nil)
		return false
	}
	change := j.run.Change()
	change.Version = j.version
	change.Status = model.Waiting
	change.Due = time.Time{}
	change.Cause = ""
	change.Emit, change.Moved = j.intakes(j.run.TakeEmits()), true
	j.count()
	if pinned != nil {
		j.at("").Warn("run is not moved", "bundle", to, "reason", pinned)
	} else {
		j.at("").Info("run is moved", "from", change.Bundle, "bundle", to)
		change.Bundle = to
	}
	if err := j.commit(change); errors.Is(err, store.ErrCancelled) {
		j.stop()
	}
	return true
}

// fits is [records.Runs.Fits] for a run of this node.
func (j *job) fits(bundle string, checkpoint []byte) (pinned, err error) {
	ctx, cancel := context.WithTimeout(j.n.ctx, clock.StoreTimeout)
	defer cancel()
	c := j.claimed
	d, err := j.n.d.Library.Get(ctx, bundle)
	if errors.Is(err, definitions.ErrUnusable) {
		return err, nil
	}
	if err != nil {
		return nil, err
	}
	return j.n.d.Runs.Fits(ctx, d, store.RunRecord{
		ID: c.ID, Event: c.Event, Flow: c.Flow, Key: c.Key, Ordered: c.Ordered, Status: model.Running, Pipeline: j.run.Plan().Pipeline.ID,
		Bundle: j.def.Bundle.Hash, Checkpoint: checkpoint, Generation: c.Generation,
	})
}
