package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
)

const bulkAndVital = `
pipelines:
  - id: bulk
    stages: [{id: s, handlers: [{id: one, step: {}}]}]
  - id: vital
    stages: [{id: s, handlers: [{id: one, step: {}}]}]
`

// A begun knows when the runs of events have begun.
type begun struct {
	mu sync.Mutex // guards at
	at map[string]time.Time
}

// note notes that the run of an event begins, and returns how many have begun.
func (b *begun) note(event string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at == nil {
		b.at = map[string]time.Time{}
	}
	b.at[event] = time.Now()
	return len(b.at)
}

func (b *begun) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.at)
}

// wait returns how long after a time the run of an event has begun. It is negative if it has not.
func (b *begun) wait(event string, since time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at[event].Sub(since)
}

// A flood of one pipeline makes no event of another wait behind it, on the node that takes the
// flood in and on others.
func TestAFloodPassesNobodyBy(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var runs begun
		r.on("one", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
			n := runs.note(c.Event.ID)
			time.Sleep(100*time.Millisecond + time.Duration(n%256)*3*time.Millisecond)
			return model.Result{}, nil
		})
		e, _ := r.start(bulkAndVital)
		other, _ := r.start(bulkAndVital)
		pass(2 * time.Second)
		const flood = 6_000
		for i := range flood / 200 {
			events := make([]intake.Submission, 200)
			for k := range events {
				events[k].Event = event("bulk", fmt.Sprint(i, "/", k))
			}
			if _, err := e.Submit(context.Background(), events); err != nil {
				t.Fatal(err)
			}
		}
		var came []time.Time
		for i := range 12 {
			at := e
			if i%2 == 1 {
				at = other
			}
			ev := event("vital", fmt.Sprint(i))
			ev.ID = fmt.Sprint("vital-", i)
			r.submit(at, ev)
			came = append(came, time.Now())
			pass(200 * time.Millisecond)
		}
		if n := runs.count(); n > flood-500 {
			t.Fatalf("want that the flood waits, %d runs have begun", n)
		}
		for i, at := range came {
			if wait := runs.wait(fmt.Sprint("vital-", i), at); wait < 0 || wait > 150*time.Millisecond {
				t.Errorf("event %d has waited for %s behind the flood", i, wait)
			}
		}
	})
}

// A flood whose runs take long leaves places free, so an event of another finds one at once. Without
// others, it has nearly all.
func TestALongFloodLeavesPlacesFree(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var runs begun
		r.on("one", func(ctx context.Context, c *engine.Call, _ any) (model.Result, error) {
			runs.note(c.Event.ID)
			if c.Event.Type == "bulk" {
				<-ctx.Done()
			}
			return model.Result{}, nil
		})
		e := r.engine(r.store, bulkAndVital, func(o *engine.Options) { o.MaxInFlight = 64 })
		r.run(e)
		synctest.Wait()
		for i := range 200 {
			r.submit(e, event("bulk", fmt.Sprint(i)))
		}
		pass(time.Second)
		if n := runs.count(); n != 62 {
			t.Errorf("want 62 runs of a flood that has the node alone, have %d", n)
		}
		for i := range 100 {
			ev := event("vital", fmt.Sprint(i))
			ev.ID = fmt.Sprint("vital-", i)
			came := time.Now()
			r.submit(e, ev)
			pass(100 * time.Millisecond)
			if wait := runs.wait(ev.ID, came); wait < 0 || wait > 10*time.Millisecond {
				t.Fatalf("event %d has waited for %s", i, wait)
			}
		}
	})
}

// Runs that wait for a handler do not fill the node, and those that are woken do not make others
// wait.
func TestRunsThatWaitForACallLeaveRoom(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var runs begun
		r.on("one", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
			runs.note(c.Event.ID)
			if c.Event.Type == "bulk" {
				time.Sleep(3 * time.Second)
			}
			return model.Result{}, nil
		})
		e, _ := r.start(`
pipelines:
  - id: bulk
    stages: [{id: s, handlers: [{id: one, max-in-flight: 30, step: {}}]}]
  - id: vital
    stages: [{id: s, handlers: [{id: one, step: {}}]}]
`, func(o *engine.Options) { o.MaxInFlight = 64 })
		var came []time.Time
		for i := range 40 {
			events := make([]intake.Submission, 20)
			for k := range events {
				events[k].Event = event("bulk", fmt.Sprint(i, "/", k))
			}
			if _, err := e.Submit(context.Background(), events); err != nil {
				t.Fatal(err)
			}
			ev := event("vital", fmt.Sprint(i))
			ev.ID = fmt.Sprint("vital-", i)
			r.submit(e, ev)
			came = append(came, time.Now())
			pass(100 * time.Millisecond)
		}
		pass(time.Second)
		if n := runs.count(); n > 400 {
			t.Fatalf("want that the flood waits, %d runs have begun", n)
		}
		for i, at := range came {
			if wait := runs.wait(fmt.Sprint("vital-", i), at); wait < 0 || wait > 150*time.Millisecond {
				t.Errorf("event %d has waited for %s behind runs that wait for a call", i, wait)
			}
		}
	})
}

// While other runs have all places, a node wakes one run a second of those that wait for a call. The
// others would stand before all that come, because they are older.
func TestAFullNodeWakesOneRunASecond(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first, slow := make(gate), make(gate)
		r.on("one", first.do)
		r.on("two", slow.do)
		e := r.engine(r.store, `
pipelines:
  - id: bulk
    stages: [{id: s, handlers: [{id: one, max-in-flight: 4, step: {}}]}]
  - id: slow
    stages: [{id: s, handlers: [{id: two, step: {}}]}]
`, func(o *engine.Options) { o.MaxInFlight = 16 })
		r.run(e)
		for i := range 200 {
			r.submit(e, event("bulk", fmt.Sprint(i)))
		}
		pass(10 * time.Second)
		for i := range 16 {
			r.submit(e, event("slow", fmt.Sprint(i)))
		}
		close(first) // the places of these calls go to slow runs
		pass(time.Second)
		before := parkedForACall(t, r)
		pass(10 * time.Second)
		if after := parkedForACall(t, r); before < 150 || before-after > 11 {
			t.Errorf("want at most one run woken a second on a full node, have %d parked before 10 s and %d after", before, after)
		}
		close(slow)
		r.succeeded(e, time.Minute)
	})
}

// parkedForACall returns how many runs wait in the store until they may make a call.
func parkedForACall(t *testing.T, r *rig) (n int) {
	d, err := r.store.Inbox.Depth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range d.Aside {
		if a.Place == store.AsideParked && a.Cause != "" {
			n += a.Runs
		}
	}
	return n
}
