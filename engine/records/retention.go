package records

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"procaas/engine/clock"
	"procaas/engine/model"
	"procaas/engine/store"
)

const (
	trimEvery = time.Minute
	trimPause = 50 * time.Millisecond // between the parts, so that other work can proceed

	// trimAudit is the longest time between two trims of the audit. Each adds a record.
	trimAudit = time.Hour
)

// A Retention deletes old data from the store. The caller sets its fields.
type Retention struct {
	Runs   *Runs
	Log    *slog.Logger
	Failed func(operation string) // counts what the store has refused

	// IsBehind reports whether the node serves another definition than the current one.
	IsBehind func() bool

	Keep      time.Duration // how long ended runs and ids of events are kept, unless a pipeline says otherwise; 0 is forever
	KeepAudit time.Duration // the same for audit records

	// Archiver says whether runs leave only through an archive.
	Archiver *Archiver
}

// Run deletes old data until ctx ends.
func (r *Retention) Run(ctx context.Context) {
	var audited time.Time // when the audit was last trimmed to its end
	for next := trimEvery; clock.Pause(ctx, next); {
		next = trimEvery
		for _, part := range []struct {
			keep time.Duration
			trim func(context.Context, time.Duration) (bool, error)
			last *time.Time
		}{{-1, r.trimRuns, nil}, {r.KeepAudit, r.Runs.Store.Audits.ForgetAudit, &audited}, {-1, r.giveUpFailed, nil}, {-1, r.thinRuns, nil}} {
			if part.keep == 0 || part.last != nil && time.Since(*part.last) < min(trimAudit, part.keep/10) {
				continue
			}
			limited, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
			more, err := part.trim(limited, part.keep)
			cancel()
			switch {
			case err != nil && ctx.Err() == nil:
				r.Failed("trim")
				r.Log.Warn("what is old cannot be removed, trying again", "error", err)
			case more:
				next = trimPause
			case part.last != nil:
				*part.last = time.Now()
			}
		}
	}
}

// trimRuns deletes old runs, if the store supports it. A node that cannot run the current definition does not know how long its
// pipelines keep their runs, so it leaves this to other nodes.
func (r *Retention) trimRuns(ctx context.Context, _ time.Duration) (more bool, err error) {
	if r.Runs.Store.Trimmer == nil || r.IsBehind() {
		return false, nil
	}
	keep := r.Terms()
	if keep.Archived, err = r.Archiver.Governs(ctx); err != nil {
		return false, err
	}
	return r.Runs.Store.Trimmer.Trim(ctx, keep)
}

// Terms returns how long runs stay by the current definition.
func (r *Retention) Terms() store.Retention {
	keep := store.Retention{Keep: r.Keep, Pipelines: map[string]time.Duration{}, Last: map[string]int{}}
	for _, p := range r.Runs.Library.Present().Bundle.Pipelines {
		if p.Retention > 0 {
			keep.Pipelines[p.ID] = p.Retention
		}
		if p.Keep > 0 {
			keep.Last[p.ID] = p.Keep
		}
	}
	return keep
}

// thinRuns deletes runs of pipelines that limit how many are kept.
func (r *Retention) thinRuns(ctx context.Context, _ time.Duration) (more bool, err error) {
	store := r.Runs.Store.Trimmer
	if store == nil || r.IsBehind() {
		return false, nil
	}
	if archived, err := r.Archiver.Governs(ctx); err != nil || archived {
		return false, err
	}
	for _, p := range r.Runs.Library.Present().Bundle.Pipelines {
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

// giveUpFailed cancels the oldest failed runs of pipelines that limit how many of them are kept.
func (r *Retention) giveUpFailed(ctx context.Context, _ time.Duration) (more bool, err error) {
	for _, p := range r.Runs.Library.Present().Bundle.Pipelines {
		if p.KeepFailed == 0 {
			continue
		}
		again, err := r.giveUp(ctx, p.ID, p.KeepFailed)
		if err != nil {
			return false, err
		}
		more = more || again
	}
	return more, nil
}

// giveUp cancels a page of a pipeline's failed runs, except the newest keep ones.
func (r *Retention) giveUp(ctx context.Context, pipeline string, keep int) (more bool, err error) {
	const page = 1000
	by := store.Actor{Name: "procaas", Reason: fmt.Sprintf("keep-failed: %d of pipeline %s wait already", keep, pipeline)}
	f := store.RunFilter{Pipeline: pipeline, Status: model.Failed, Limit: page}
	for kept := 0; ; {
		records, next, err := r.Runs.list(ctx, f)
		if err != nil {
			return false, fmt.Errorf("failed runs of %s: %w", pipeline, err)
		}
		last := min(keep-kept, len(records))
		kept += last
		for _, run := range records[last:] {
			if _, err := r.Runs.Cancel(ctx, run.ID, by); err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
				return false, err
			}
		}
		if next == "" || last < len(records) {
			return next != "", nil
		}
		f.Cursor = next
	}
}
