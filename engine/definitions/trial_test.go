package definitions_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"procaas/engine/canary"
	"procaas/engine/definitions"
	"procaas/engine/fallback"
	"procaas/engine/memory"
	"procaas/engine/store"
)

// Another node has ended the trial. This one has not had its next beat yet.
func TestATrialThatHasEndedElsewhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ phase, want string }{
		{canary.Promoted, ""},
		{canary.RolledBack, "the last one, of version new, is rolled back: it was slow"},
	} {
		db := memory.New(nil).Ports().Degradation
		here, there := fallback.New(db), fallback.New(db)
		steer := func(at *fallback.Live, change func(*fallback.State, time.Time)) {
			t.Helper()
			err := at.Steer(t.Context(), func(s *fallback.State, now time.Time) ([]store.Audited, error) {
				change(s, now)
				return []store.Audited{{Kind: store.AuditCanary, Name: "new"}}, nil
			})
			if err := errors.Join(err, at.Refresh(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		steer(here, func(s *fallback.State, now time.Time) {
			s.Canary = canary.Begin("old", "new", canary.Order{Percent: 100}, 1, nil, "ann", "", now)
		})
		steer(there, func(s *fallback.State, now time.Time) { s.Canary.End(c.phase, "it was slow", now) })
		f := definitions.Follower{Trials: here, Tell: func([]canary.Event) {}}
		if !f.Canary().Runs() {
			t.Fatal("the node knows of the end already, so nothing is tested")
		}
		ended, err := f.EndTrial(context.Background(), store.Actor{Name: "ben"})
		switch {
		case c.want == "" && (err != nil || ended.Phase != c.phase):
			t.Errorf("%s: have %+v, %v", c.phase, ended, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: have %v, want %q", c.phase, err, c.want)
		}
		if last, err := f.LastTrial(t.Context()); err != nil || last.Phase != c.phase {
			t.Errorf("have %+v, %v, want the trial that the store has", last, err)
		}
	}
}
