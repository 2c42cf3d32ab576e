package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine/store"
	"procaas/engine/taskrun"
)

// A taskCare counts what is done for the queue.
type taskCare struct {
	store.TaskMaintenance
	promoted, reclaimed, expired int
	keep                         time.Duration
}

func (c *taskCare) PromoteTasks(context.Context, int) (int, time.Duration, error) {
	c.promoted++
	return 0, 0, nil
}

func (c *taskCare) ReclaimTasks(context.Context, int, int) (int, error) {
	c.reclaimed++
	return 0, nil
}

func (c *taskCare) ExpireTasks(_ context.Context, ended, failed time.Duration) (int, error) {
	c.expired, c.keep = c.expired+1, ended
	if failed != 0 {
		return 0, errors.New("dead letters stay")
	}
	time.Sleep(5 * time.Minute) // the others do not wait for it
	return 0, nil
}

// A node that has no pipelines for it cares for the queue, too: without that the history of
// tasks would grow forever.
func TestNodesCareForTasks(t *testing.T) {
	t.Parallel()
	for keep, want := range map[time.Duration]time.Duration{time.Hour: time.Hour, 0: store.MaxTaskAhead} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), 150*time.Minute)
			defer stop()
			var care taskCare
			taskrun.TendTasks(ctx, &care, keep, slog.New(slog.DiscardHandler))
			if least := int(149 * time.Minute / time.Second); care.promoted < least || care.reclaimed < least {
				t.Errorf("have %+v, want tasks promoted and taken back each second", care)
			}
			if care.expired < 2 || care.expired > 3 || care.keep != want {
				t.Errorf("have %+v, want those forgotten each hour that ended longer ago than %v", care, want)
			}
		})
	}
}

// Documents with a full disk where the audit is kept.
type fullAudit struct{ store.Documents }

var errFullAudit = errors.New("the disk of the audit is full")

func (fullAudit) WriteDocuments(context.Context, int64, []store.DocumentWrite, []store.Audited) ([]int64, error) {
	return nil, errFullAudit
}

// The mode of a type of tasks changes with its record only, and a record of what could
// not be done is followed by one that says so.
func TestQueueModeChangesWithItsRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	calls := 0
	pause := func(db store.Store, outcome error) error {
		set := func() error { calls++; return outcome }
		return r.engine(db, onePipeline("one")).SetQueueMode(t.Context(), "thumbs", store.TasksPaused, ann, set)
	}
	full := r.store
	full.Documents = fullAudit{full.Documents}
	if err := pause(full, nil); !errors.Is(err, errFullAudit) || calls != 0 {
		t.Errorf("want no change without its record, have %d and %v", calls, err)
	}
	away := errors.New("the queue is away")
	if err := pause(r.store, away); !errors.Is(err, away) || calls != 1 {
		t.Errorf("want what the queue says, have %d and %v", calls, err)
	}
	if err := pause(r.store, nil); err != nil || calls != 2 {
		t.Errorf("want a change, have %d and %v", calls, err)
	}
	found, err := r.store.Audits.Audit(t.Context(), store.AuditFilter{Kind: store.AuditQueue, Name: "thumbs", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var have []string // the newest first
	for _, a := range found {
		have = append(have, string(a.After))
		if a.By != ann {
			t.Errorf("want the record of ann, have %+v", a)
		}
	}
	if want := []string{`"paused"`, `"paused failed: the queue is away"`, `"paused"`}; !slices.Equal(have, want) {
		t.Errorf("want the audit to have %q, have %q", want, have)
	}
}
