package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"procaas/engine/clock"
	"procaas/engine/model"
	"procaas/engine/store"
)

const (
	trimEvery = time.Minute
	trimPause = 50 * time.Millisecond // between the parts, for those who work
)

// trim lets the store forget what is older than Options.Retention, and audit
// records that are older than Options.AuditRetention, until ctx ends.
func (e *Engine) trim(ctx context.Context) {
	for next := trimEvery; clock.Pause(ctx, next); {
		next = trimEvery
		for _, part := range []struct {
			keep time.Duration
			trim func(context.Context, time.Duration) (bool, error)
		}{{e.o.Retention, e.trimRuns}, {e.o.AuditRetention, e.o.Store.Audits.ForgetAudit}, {-1, e.giveUpFailed}, {-1, e.thinRuns}} {
			if part.keep == 0 {
				continue
			}
			limited, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
			more, err := part.trim(limited, part.keep)
			cancel()
			switch {
			case err != nil && ctx.Err() == nil:
				e.metrics.Failed("trim")
				e.log.Warn("what is old cannot be removed, trying again", "error", err)
			case more:
				next = trimPause
			}
		}
	}
}

// trimRuns lets a store forget runs that can.
func (e *Engine) trimRuns(ctx context.Context, keep time.Duration) (more bool, err error) {
	if e.o.Store.Trimmer == nil {
		return false, nil
	}
	return e.o.Store.Trimmer.Trim(ctx, keep)
}

// thinRuns lets a store forget runs of pipelines that say how many they keep.
func (e *Engine) thinRuns(ctx context.Context, _ time.Duration) (more bool, err error) {
	store := e.o.Store.Trimmer
	if store == nil {
		return false, nil
	}
	for _, p := range e.Bundle().Pipelines {
		if p.Keep == 0 {
			continue
		}
		again, err := store.TrimRuns(ctx, p.ID, p.Keep)
		if err != nil {
			return false, err
		}
		more = more || again
	}
	return more, nil
}

// giveUpFailed cancels the failed runs of pipelines that say how many of them wait for
// people, but for the last ones.
func (e *Engine) giveUpFailed(ctx context.Context, _ time.Duration) (more bool, err error) {
	for _, p := range e.Bundle().Pipelines {
		if p.KeepFailed == 0 {
			continue
		}
		again, err := e.giveUp(ctx, p.ID, p.KeepFailed)
		if err != nil {
			return false, err
		}
		more = more || again
	}
	return more, nil
}

// giveUp cancels a page of the failed runs of a pipeline before the last keep ones.
func (e *Engine) giveUp(ctx context.Context, pipeline string, keep int) (more bool, err error) {
	const page = 1000
	by := store.Actor{Name: "procaas", Reason: fmt.Sprintf("keep-failed: %d of pipeline %s wait already", keep, pipeline)}
	f := store.RunFilter{Pipeline: pipeline, Status: model.Failed, Limit: page}
	for kept := 0; ; {
		records, next, err := e.list(ctx, f)
		if err != nil {
			return false, fmt.Errorf("failed runs of %s: %w", pipeline, err)
		}
		last := min(keep-kept, len(records))
		kept += last
		for _, r := range records[last:] {
			if _, err := e.Cancel(ctx, r.ID, by); err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
				return false, err
			}
		}
		if next == "" || last < len(records) {
			return next != "", nil
		}
		f.Cursor = next
	}
}
