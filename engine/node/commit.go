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

// maxTries is how often a change is tried in a row while others wait behind it.
const maxTries = 8

// A committer writes the steps of many runs in shared transactions. If the store fails, it retries
// each step until the step is written or the node is fenced. It drops a step only if the store
// reports that it can never keep it.
type committer struct {
	ledger  store.Ledger
	runs    store.Runs
	node    int64
	log     *slog.Logger
	metrics *stats.Metrics
	health  *writes.Health
	failing stats.Teller
	damaged func(error)     // called when a run's row cannot be written because it is damaged
	fenced  func()          // called when the node may no longer write
	ctx     context.Context // of the node's membership; its end drops what is not written

	shared  writes.Batcher[model.Change, error]
	written atomic.Int64 // transactions; distinguishes a bad change from a failing store
	stuck   atomic.Int64 // changes of damaged rows that are tried again and again
}

// start makes a committer with its fields set ready to use.
func (c *committer) start() {
	c.shared.Shared, c.shared.Most, c.shared.Lanes = c, writes.MaxBatch, 2
}

// Write implements [writes.Shared].
func (c *committer) Write(changes []model.Change) []error { return c.write(changes, false) }

// commit writes one step. If it returns nil, the step is durable. Other errors are ErrStale,
// ErrCancelled, ErrFenced, and the store's refusal of this change.
func (c *committer) commit(change model.Change) error {
	began := time.Now()
	refused, err := c.shared.CallOne(c.ctx, change)
	if err != nil {
		return err
	}
	if mayPass(refused) {
		if refused, err = c.commitAgain(change); err != nil {
			return err
		}
	}
	if refused == nil {
		c.metrics.Checkpoint.Observe(time.Since(began).Seconds())
	}
	return refused
}

// damagedAgain is how often a change of a damaged row is tried, since each try spoils a transaction
// for others.
const damagedAgain = 5 * time.Second

// errLater reports that the store cannot accept a change now.
var errLater = errors.New("the store does not take it at present")

// mayPass reports whether to retry a change.
func mayPass(err error) bool { return errors.Is(err, store.ErrAway) || errors.Is(err, errLater) }

// commitAgain retries a change until the store accepts it, for example until the cell of the run
// can be reached or there is room for the change. Other changes do not wait for it.
func (c *committer) commitAgain(change model.Change) (refused, err error) {
	backoff := 10 * time.Millisecond
	for {
		c.metrics.Failed("commit")
		if !clock.Pause(c.ctx, backoff) {
			return nil, context.Cause(c.ctx)
		}
		if backoff < clock.MaxBackoff {
			backoff *= 2
		}
		if refused, err = c.shared.CallOne(c.ctx, change); err != nil {
			return nil, err
		}
		if !mayPass(refused) {
			errs := []error{refused}
			c.settle([]model.Change{change}, errs)
			return errs[0], nil
		}
		if errors.Is(refused, store.ErrDamaged) && backoff < damagedAgain {
			backoff = damagedAgain
			c.stuck.Add(1)
			defer c.stuck.Add(-1)
		}
	}
}

// write writes changes until their outcome is known. inDoubt says that an earlier try may have
// written them.
func (c *committer) write(changes []model.Change, inDoubt bool) []error {
	backoff := 10 * time.Millisecond
	before := c.written.Load()
	for try := 1; ; try++ {
		began := time.Now()
		errs, err := c.try(changes)
		switch {
		case err == nil:
			c.written.Add(1)
			c.health.Note(nil, began, time.Now())
			if inDoubt { // a stale answer may be the echo of our own first try
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
		if !store.IsOfData(err) || c.stuck.Load() > 1 {
			c.health.Note(err, began, time.Now())
		}
		if unsaid, ok := c.failing.Say(time.Now()); ok {
			c.log.Warn("commit failed, trying again", "changes", len(changes), "try", try, "error", err, "unlogged", unsaid)
		}
		if !clock.Pause(c.ctx, backoff) {
			return repeat(context.Cause(c.ctx), len(changes))
		}
		backoff = min(2*backoff, clock.MaxBackoff)
		damaged := errors.Is(err, store.ErrDamaged)
		if try < 2 && !damaged {
			continue
		}
		// One change may spoil the transaction for all: find it.
		if half := len(changes) / 2; half > 0 {
			return append(c.write(changes[:half], true), c.write(changes[half:], true)...)
		}
		switch {
		case damaged:
			c.damaged(fmt.Errorf("run %s stands still: %w", changes[0].Run, err))
			return []error{fmt.Errorf("%w: %w", errLater, err)}
		case try < maxTries:
		case !errors.Is(err, store.ErrRefused):
			return []error{fmt.Errorf("%w: %w", errLater, err)}
		case c.written.Load() > before:
			return c.refuse(changes[0], err)
		default: // others may need the lane to be written
			return []error{fmt.Errorf("%w: %w", errLater, err)}
		}
	}
}

// try tries once to write changes.
func (c *committer) try(changes []model.Change) ([]error, error) {
	ctx, cancel := context.WithTimeout(c.ctx, clock.StoreTimeout)
	defer cancel()
	ended := c.health.Begin(time.Now())
	defer ended()
	return c.ledger.Commit(ctx, c.node, changes)
}

// refuse drops a change that the store refuses while it writes others.
func (c *committer) refuse(change model.Change, err error) []error {
	if c.isWritten(change) {
		return []error{nil}
	}
	return []error{fmt.Errorf("the store refuses it: %w", err)}
}

// settle corrects the errors of changes that an earlier try may have written without an answer.
func (c *committer) settle(changes []model.Change, errs []error) {
	for i, err := range errs {
		if (errors.Is(err, store.ErrStale) || errors.Is(err, store.ErrCancelled)) && c.isWritten(changes[i]) {
			errs[i] = nil
		}
	}
}

// isWritten reports whether a change was written. It reads the run until that succeeds or the
// membership ends. Only the owner moves a run forward. So if the run has advanced further than this
// change, the change was written and released the run.
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
