package taskrun

import (
	"context"
	"errors"
	"slices"
	"testing"

	"procaas/engine/enginetest"
	"procaas/engine/store"
)

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
	calls, kept, ann := 0, enginetest.NewMemory().Ports(), store.Actor{Name: "ann"}
	pause := func(documents store.Documents, outcome error) error {
		set := func() error { calls++; return outcome }
		return SetMode(t.Context(), documents, "thumbs", store.TasksPaused, ann, set)
	}
	if err := pause(fullAudit{kept.Documents}, nil); !errors.Is(err, errFullAudit) || calls != 0 {
		t.Errorf("want no change without its record, have %d and %v", calls, err)
	}
	away := errors.New("the queue is away")
	if err := pause(kept.Documents, away); !errors.Is(err, away) || calls != 1 {
		t.Errorf("want what the queue says, have %d and %v", calls, err)
	}
	if err := pause(kept.Documents, nil); err != nil || calls != 2 {
		t.Errorf("want a change, have %d and %v", calls, err)
	}
	found, err := kept.Audits.Audit(t.Context(), store.AuditFilter{Kind: store.AuditQueue, Name: "thumbs", Limit: 10})
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
