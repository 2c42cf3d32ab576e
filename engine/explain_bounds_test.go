package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"procaas/engine/clock"
	"procaas/engine/explain"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A condition that is cheap to ask may have parts which, written out, are larger than any
// memory. Explaining it stays as cheap.
func TestExplainOfValuesThatHoldEachOtherIsSmall(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, `
pipelines:
  - id: work
    stages:
      - id: a
        handlers:
          - id: one
            critical: false
            enabled: !$ |
              1 in reduce(1..event.payload.n, [#acc, #acc], 1)
            step: {}
`)
	run := r.submit(r.v.Engine(), model.Event{Type: "work", Payload: map[string]any{"n": 60}})
	r.drain()
	x := r.wantExplained(run, "one", "enabled", "enabled is false", "enabled false")
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	if most := 1 << 20; len(text) > most {
		t.Errorf("want an explanation of at most %d bytes, have %d", most, len(text))
	}
	if part := x.Decisions[0].Trace.Parts[0]; !part.Cut {
		t.Errorf("want it said that values are cut, have %+v", part)
	}
}

// Calls nest at most eight deep; with twenty at each level, a handler has more places
// than can be looked at one by one.
func TestExplainOfHandlersWithCountlessPlaces(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	fmt.Fprintln(&b, "pipelines:")
	const levels, calls = 8, 20
	for level := range levels {
		when := "inputs.n > 5"
		if level == 0 {
			when = "event.payload.go"
		}
		fmt.Fprintf(&b, "  - id: p%d\n", level)
		if level > 0 {
			fmt.Fprintln(&b, "    inputs: {n: {type: integer}}")
		}
		fmt.Fprintf(&b, "    stages:\n      - id: s\n        handlers:\n")
		for i := range calls {
			if level == levels-1 {
				fmt.Fprintln(&b, "          - {id: leaf, step: {}}")
				break
			}
			fmt.Fprintf(&b, "          - {id: h%d, critical: false, enabled: !$ %s, call: {pipeline: p%d, with: {n: 1}}}\n", i, when, level+1)
		}
	}
	r := newVirtualRig(t, b.String())
	run := r.submit(r.v.Engine(), model.Event{Type: "p0", Payload: map[string]any{"go": false}})
	r.drain()
	r.wantExplained(run, "leaf", "not_reached", "it never ran: p0/s/h0, which calls its pipeline, was left out")
	story, err := r.v.Engine().Story(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(story.Stages[0].Steps); n < calls || n > 20_000 {
		t.Errorf("want the steps of the run, and a bounded number of others, have %d", n)
	}
	if _, err := r.v.Engine().Explain(t.Context(), run, "nobody"); !errors.Is(err, explain.ErrNoHandler) ||
		!strings.Contains(err.Error(), "calls make too many") {
		t.Errorf("want it said that not all was looked at, have %v", err)
	}
}

// heldRuns answer a question about a run on command.
type heldRuns struct {
	store.Runs
	asked  chan struct{}
	answer chan struct{}
}

func (s *heldRuns) Run(ctx context.Context, id string) (store.RunRecord, error) {
	s.asked <- struct{}{}
	select {
	case <-s.answer:
	case <-ctx.Done():
		return store.RunRecord{}, ctx.Err()
	}
	return s.Runs.Run(ctx, id)
}

// However many ask, a node looks into two runs at once; those whose caller leaves meanwhile
// cost it nothing.
func TestFewRunsAreLookedIntoAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		slow := &heldRuns{r.store.Runs, make(chan struct{}, 10), make(chan struct{})}
		db := r.store
		db.Runs = slow
		e := r.engine(db, "pipelines: [{id: work, stages: [{id: a, handlers: [{id: one, step: {}}]}]}]")
		run := r.submit(e, model.Event{Type: "work", Payload: map[string]any{}})
		ended := make(chan error, 10)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 6 {
			go func() {
				var err error
				if i%2 == 0 {
					_, err = e.Explain(ctx, run, "one")
				} else {
					_, err = e.Story(ctx, run)
				}
				ended <- err
			}()
		}
		synctest.Wait()
		if n := len(slow.asked); n != 2 {
			t.Errorf("want two that look into the run, have %d", n)
		}
		cancel()
		synctest.Wait()
		tooLong := 0
		for range 6 {
			if err := <-ended; errors.Is(err, clock.ErrTooLong) {
				tooLong++
			}
		}
		if tooLong != 4 {
			t.Errorf("want four that never got their turn, have %d", tooLong)
		}
		close(slow.answer)
		if _, err := e.Explain(t.Context(), run, "one"); err != nil {
			t.Errorf("want the next one answered, have %v", err)
		}
	})
}
