package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"procaas/engine/clock"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"
	"procaas/engine/writes"
)

// maxTries is how often a change is tried in one go, while others wait behind it.
const maxTries = 8

// A committer writes the steps of many runs in shared transactions. It gives up
// no step because the store fails: it tries again until the step is written, or
// the node is fenced. Only what the store says that it can never keep is given up.
type committer struct {
	ledger  store.Ledger
	runs    store.Runs
	node    int64
	log     *slog.Logger
	metrics *stats.Metrics
	health  *writes.Health
	fenced  func()          // told when the node may write no more
	ctx     context.Context // of the node's membership; its end drops what is not written

	shared  writes.Batcher[model.Change, error]
	written atomic.Int64 // transactions, to tell a bad change from a bad store
}

// start makes the zero committer, with its fields set, ready for use.
func (c *committer) start() {
	c.shared.Do = func(changes []model.Change) []error { return c.write(changes, false) }
	c.shared.Most, c.shared.Lanes = writes.MaxBatch, 2
}

// commit writes one step; when it returns nil, the step is durable. Other errors
// are ErrStale, ErrCancelled, ErrFenced, and a store's refusal of this change.
func (c *committer) commit(change model.Change) error {
	began := time.Now()
	errs, err := c.shared.Call(c.ctx, []model.Change{change})
	if err != nil {
		return err
	}
	if mayPass(errs[0]) {
		if errs, err = c.commitAgain(change); err != nil {
			return err
		}
	}
	if errs[0] == nil {
		c.metrics.Checkpoint.Observe(time.Since(began).Seconds())
	}
	return errs[0]
}

// errLater reports that the store does not take a change at present.
var errLater = errors.New("the store does not take it at present")

// mayPass reports whether a change is to be handed in again.
func mayPass(err error) bool { return errors.Is(err, store.ErrAway) || errors.Is(err, errLater) }

// commitAgain hands a change in until the store takes it, such as when the cell can be
// reached that has the run, or there is room for the change. Others do not wait for it.
func (c *committer) commitAgain(change model.Change) (errs []error, err error) {
	backoff := 10 * time.Millisecond
	for {
		c.metrics.Failed("commit")
		if !clock.Pause(c.ctx, backoff) {
			return nil, context.Cause(c.ctx)
		}
		backoff = min(2*backoff, clock.MaxBackoff)
		if errs, err = c.shared.Call(c.ctx, []model.Change{change}); err != nil {
			return nil, err
		}
		if !mayPass(errs[0]) {
			c.settle([]model.Change{change}, errs)
			return errs, nil
		}
	}
}

// write writes changes until it is known what became of them. In doubt says that
// an earlier try may have written them already.
func (c *committer) write(changes []model.Change, inDoubt bool) []error {
	backoff := 10 * time.Millisecond
	before := c.written.Load()
	for try := 1; ; try++ {
		errs, err := c.try(changes)
		switch {
		case err == nil:
			c.written.Add(1)
			c.health.Note(nil, time.Now())
			if inDoubt {
				c.settle(changes, errs)
			}
			return errs
		case errors.Is(err, store.ErrFenced):
			c.fenced()
			return repeat(err, len(changes))
		case c.ctx.Err() != nil:
			return repeat(context.Cause(c.ctx), len(changes))
		}
		inDoubt = true
		c.metrics.Failed("commit")
		c.health.Note(err, time.Now())
		c.log.Warn("commit failed, trying again", "changes", len(changes), "try", try, "error", err)
		if !clock.Pause(c.ctx, backoff) {
			return repeat(context.Cause(c.ctx), len(changes))
		}
		backoff = min(2*backoff, clock.MaxBackoff)
		if try < 2 {
			continue
		}
		// One change may spoil it for all: find it.
		if half := len(changes) / 2; half > 0 {
			return append(c.write(changes[:half], true), c.write(changes[half:], true)...)
		}
		switch {
		case try < maxTries:
		case !errors.Is(err, store.ErrRefused):
			return []error{fmt.Errorf("%w: %w", errLater, err)}
		case c.written.Load() > before:
			return c.refuse(changes[0], err)
		}
	}
}

// try makes one attempt to write changes.
func (c *committer) try(changes []model.Change) ([]error, error) {
	ctx, cancel := context.WithTimeout(c.ctx, clock.StoreTimeout)
	defer cancel()
	return c.ledger.Commit(ctx, c.node, changes)
}

// refuse gives up a change that the store refuses while it writes others.
func (c *committer) refuse(change model.Change, err error) []error {
	if c.isWritten(change) {
		return []error{nil}
	}
	return []error{fmt.Errorf("the store refuses it: %w", err)}
}

// settle corrects the errors of changes that an earlier try may have written
// already, its answer having been lost.
func (c *committer) settle(changes []model.Change, errs []error) {
	for i, err := range errs {
		if (errors.Is(err, store.ErrStale) || errors.Is(err, store.ErrCancelled)) && c.isWritten(changes[i]) {
			errs[i] = nil
		}
	}
}

// isWritten reads a run, until that succeeds or the membership ends, and reports
// whether a change was written. Nobody else moves a run that the node owns. So
// when the run has moved on further than by this change, then because the change
// gave it back.
func (c *committer) isWritten(change model.Change) bool {
	backoff := 10 * time.Millisecond
	for {
		ctx, cancel := context.WithTimeout(c.ctx, clock.StoreTimeout)
		r, err := c.runs.Run(ctx, change.Run)
		cancel()
		switch {
		case err == nil && r.Version == change.Version+1:
			return bytes.Equal(r.Checkpoint, change.Checkpoint)
		case err == nil:
			return r.Version > change.Version+1 && change.Status != model.Running
		case errors.Is(err, store.ErrNotFound):
			return false
		}
		c.metrics.Failed("read")
		c.log.Warn("run cannot be read, trying again", "path", change.Pipeline, "run", change.Run, "error", err)
		if !clock.Pause(c.ctx, backoff) {
			return false
		}
		backoff = min(2*backoff, clock.MaxBackoff)
	}
}

// repeat returns the same error n times.
func repeat(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}
