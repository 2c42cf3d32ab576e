package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/checkpoint"
	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/store"
)

// longer is three with a stage more at its end.
var longer = three + "      - {id: d, handlers: [{id: four, step: {}}]}\n"

// activate makes a definition the one for new events.
func (r *rig) activate(e *engine.Engine, yaml string) {
	r.t.Helper()
	if _, err := e.Load(context.Background(), r.bundle(yaml), ann); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) move(e *engine.Engine, run string) checkpoint.RunView {
	r.t.Helper()
	v, err := e.Move(context.Background(), run, ann)
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

func TestFailedRunGoesOnByTheDefinitionItWasMovedTo(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("two", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, model.Permanent(errors.New("no"))
		})
		e, _ := r.start(three)
		id := r.submit(e, event("work", "k"))
		before := r.settle(e, id, model.Failed)
		r.activate(e, longer)
		fit, err := e.Fit(context.Background(), id)
		if err != nil || !fit.Compatible || fit.Bundle != before.Bundle {
			t.Fatalf("want it to fit, have %+v, %v", fit, err)
		}
		if v := r.move(e, id); v.Bundle != r.bundle(longer).Hash || v.Status != model.Failed || v.Move != "" {
			t.Errorf("want the failed run moved, have %+v", v)
		}
		r.on("two", nil)
		if _, err := e.Retry(context.Background(), id, ann); err != nil {
			t.Fatal(err)
		}
		v := r.settle(e, id, model.Succeeded)
		if v.SharedState["seen"] != 1 {
			t.Errorf("have %v", v.SharedState)
		}
		r.want("work/a/one", "work/b/two", "work/b/two", "work/c/three", "work/d/four")
		list, err := e.Audit(context.Background(), store.AuditFilter{Name: id, Limit: 10})
		if err != nil || len(list) != 2 {
			t.Fatalf("want the move and the retry audited, have %+v, %v", list, err)
		}
		was, is := list[1].Before.(map[string]any), list[1].After.(map[string]any)
		if list[1].Kind != store.AuditRun || list[1].By != "ann" || was["bundle"] != before.Bundle || is["bundle"] != v.Bundle {
			t.Errorf("have audit %+v", list[1])
		}
	})
}

// The node that works on a run moves it when its calls have ended, whichever node
// was told to.
func TestRunningRunIsMovedBetweenItsCalls(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		open := make(gate)
		r.on("one", open.do)
		e, _ := r.start(three)
		other, _ := r.start(three)
		id := r.submit(e, event("work", "k"))
		synctest.Wait()
		r.activate(e, longer)
		pass(time.Second)
		if v := r.move(other, id); v.Bundle != r.bundle(three).Hash || v.Move != r.bundle(longer).Hash {
			t.Errorf("want the run on its way, have %+v", v)
		}
		pass(2 * time.Second)
		r.want("work/a/one")
		close(open)
		if v := r.settle(e, id, model.Succeeded); v.Bundle != r.bundle(longer).Hash || v.Move != "" {
			t.Errorf("want the run moved, have %+v", v)
		}
		r.want("work/a/one", "work/b/two", "work/c/three", "work/d/four")
		if v := r.move(e, r.submit(e, event("work", "k"))); v.Bundle != r.bundle(longer).Hash {
			t.Errorf("want nothing done to a run of the present definition, have %+v", v)
		}
	})
}

// A run that has gone on since it was looked at is looked at again by its owner.
func TestRunningRunThatDoesNotFitAnyMoreKeepsItsDefinition(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first, second := make(gate), make(gate)
		r.on("one", first.do)
		r.on("two", second.do)
		e, _ := r.start(three)
		id := r.submit(e, event("work", "k"))
		synctest.Wait()
		pass(time.Second)
		r.activate(e, strings.Replace(three, "{id: two, step: {}", "{id: new, step: {}}, {id: two, step: {}", 1))
		// It fits now; the store learns what the node does not hear.
		v := r.view(e, id)
		if fit, err := e.Fit(context.Background(), id); err != nil || !fit.Compatible {
			t.Fatalf("want it to fit, have %+v, %v", fit, err)
		}
		close(first)
		synctest.Wait() // it has begun the second handler
		move := store.Move{Run: id, Bundle: e.Bundle().Hash}
		if asked, err := r.store.Runs.Move(context.Background(), move, 0, ann); err != nil || !asked {
			t.Fatal(asked, err)
		}
		pass(time.Second)
		close(second)
		after := r.settle(e, id, model.Succeeded)
		if after.Bundle != v.Bundle || !strings.Contains(r.log.String(), "run is not moved") {
			t.Errorf("want the run to keep its definition, and a log that says so, have %+v\n%s", after, r.log.String())
		}
		r.want("work/a/one", "work/b/two", "work/c/three")
	})
}

func TestRunWhoseOwnerDiesIsMovedByTheNextOne(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		never := make(gate)
		r.on("one", never.do)
		dying := &enginetest.Faulty{Store: r.store}
		first, _ := r.startOn(dying.Ports(), three)
		id := r.submit(first, event("work", "k"))
		pass(time.Second)
		e, _ := r.start(three)
		dying.Cut()
		r.activate(e, longer)
		if v := r.move(e, id); v.Move == "" {
			t.Fatalf("want the owner asked, have %+v", v)
		}
		r.on("one", nil)
		if v := r.settle(e, id, model.Succeeded); v.Bundle != r.bundle(longer).Hash {
			t.Errorf("want the run moved, have %+v", v)
		}
		r.want("work/a/one", "work/a/one", "work/b/two", "work/c/three", "work/d/four")
	})
}

func TestParkedRunsAreMovedByFilter(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("two", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
			return model.Result{Until: c.Now.Add(time.Hour)}, nil
		})
		e, _ := r.start(three)
		var ids []string
		for i := range 5 {
			ids = append(ids, r.submit(e, event("work", fmt.Sprint("k", i))))
		}
		for _, id := range ids {
			r.settle(e, id, model.Parked)
		}
		r.activate(e, strings.Replace(three, "id: three", "id: last", 1))
		newer := r.submit(e, event("work", "k9"))
		r.settle(e, newer, model.Parked)
		filter := store.RunFilter{Pipeline: "work", Limit: 2}
		moved := 0
		for {
			p, err := e.MoveAll(context.Background(), filter, true, ann)
			if err != nil || !p.Preview || len(p.Pinned) > 0 || p.MovedOn > 0 {
				t.Fatalf("have %+v, %v", p, err)
			}
			if moved += p.Done; p.Next == nil {
				break
			}
			filter.Cursor = *p.Next
		}
		if v := r.view(e, ids[0]); moved != 5 || v.Bundle == e.Bundle().Hash {
			t.Fatalf("want a preview of 5 runs that moves none, have %d and %+v", moved, v)
		}
		filter.Cursor, filter.Limit = "", 100
		out, err := e.MoveAll(context.Background(), filter, false, ann)
		if err != nil || out.Done != 5 || out.Next != nil || out.Bundle != e.Bundle().Hash {
			t.Fatalf("have %+v, %v", out, err)
		}
		pass(time.Hour)
		for _, id := range append(ids, newer) {
			if v := r.settle(e, id, model.Succeeded); v.Bundle != e.Bundle().Hash {
				t.Errorf("have %+v", v)
			}
		}
		if n := slices.Index(r.paths(), "work/c/three"); n >= 0 {
			t.Errorf("want the new last handler called, have %v", r.paths())
		}
	})
}

func TestRunsThatCannotBeMovedAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		open := make(gate)
		r.on("two", open.do)
		e, _ := r.start(three)
		done := r.submit(e, event("work", "a"))
		waiting := r.submit(e, event("work", "a"))
		synctest.Wait()
		pass(time.Second)
		var pinned *records.PinnedError
		r.activate(e, strings.Replace(three, "id: one", "id: other", 1))
		if _, err := e.Move(context.Background(), done, ann); !errors.As(err, &pinned) || !strings.Contains(err.Error(), "work/a/one") {
			t.Errorf("want it pinned by its handler, have %v", err)
		}
		if _, err := e.LoadAndDrop(context.Background(), r.bundle(strings.Replace(three, "id: work", "id: other", 1)), ann); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Move(context.Background(), done, ann); !errors.Is(err, records.ErrPipelineGone) {
			t.Errorf("want it pinned by its pipeline, have %v", err)
		}
		if _, err := e.Move(context.Background(), waiting, ann); !errors.Is(err, store.ErrConflict) {
			t.Errorf("want a run refused that has not begun, have %v", err)
		}
		if _, err := e.Move(context.Background(), "none", ann); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("want none, have %v", err)
		}
		out, err := e.MoveAll(context.Background(), store.RunFilter{Pipeline: "work", Limit: 10}, false, ann)
		if err != nil || len(out.Pinned) != 1 || out.Pinned[0].ID != done || out.Done+out.MovedOn != 0 {
			t.Errorf("want one pinned run, have %+v, %v", out, err)
		}
		r.activate(e, three)
		close(open)
		r.settle(e, done, model.Succeeded)
		r.activate(e, longer)
		if _, err := e.Move(context.Background(), done, ann); !errors.Is(err, store.ErrConflict) {
			t.Errorf("want a run refused that has ended, have %v", err)
		}
	})
}

// What a compensation reads must be there when it is made, also by a definition that has
// come to have it.
func TestRunIsPinnedByACompensationWhoseInputIsNotKept(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		open := make(gate)
		r.on("two", open.do)
		yaml := `
pipelines:
  - id: work
    stages:
      - {id: a, handlers: [{id: one, step: {}}]}
      - {id: b, handlers: [{id: two, step: {}}]}
`
		e, _ := r.start(yaml)
		run := r.submit(e, event("work", "a"))
		pass(time.Second)
		with := func(value string) string {
			return strings.Replace(yaml, "id: one, step: {}", "id: one, step: {}, compensate: {step: {value: "+value+"}}", 1)
		}
		r.activate(e, with("!$ sources.one.response"))
		var pinned *records.PinnedError
		if _, err := e.Move(context.Background(), run, ann); !errors.As(err, &pinned) ||
			!strings.Contains(err.Error(), "work/a/one/compensate reads the response") {
			t.Errorf("want it pinned by what the compensation reads, have %v", err)
		}
		r.activate(e, with("1"))
		if _, err := e.Move(context.Background(), run, ann); err != nil {
			t.Errorf("want it moved, have %v", err)
		}
		close(open)
		r.settle(e, run, model.Succeeded)
	})
}
