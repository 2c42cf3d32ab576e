package conformance

import (
	"context"
	"sync"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
)

// timers is a pipeline that waits half-way, and a trigger.
const timers = `
pipelines:
  - id: waits
    stages:
      - {id: a, handlers: [{id: wait, timed: {}}]}
      - {id: b, handlers: [{id: after, timed: {}}]}
  - id: plain
    stages: [{id: a, handlers: [{id: now, timed: {}}]}]
  - id: ticks
    stages: [{id: a, handlers: [{id: tick, timed: {}}]}]
triggers:
  - {id: clock, every: 700ms, event: ticks, key: clock}
`

// Timers checks, on a store of its own, that two engines start what is due within a second of its
// time, and once: events with a time, waiting runs, and triggers.
func Timers(t *testing.T, store store.Store) {
	const wait, late = 1500 * time.Millisecond, time.Second
	lag := enginetest.MeasureLag(t)
	type start struct{ due, at time.Time }
	var mu sync.Mutex
	starts := map[string][]start{}
	var parkedUntil time.Time
	timed := enginetest.Scripted("timed", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		switch c.Path {
		case "waits/a/wait":
			parkedUntil = time.Now().Add(wait)
			return model.Result{Until: parkedUntil}, nil
		case "waits/b/after":
			starts[c.Path] = append(starts[c.Path], start{parkedUntil, time.Now()})
		case "plain/a/now":
			starts[c.Path] = append(starts[c.Path], start{c.Event.At, time.Now()})
		case "ticks/a/tick":
			starts[c.Path] = append(starts[c.Path], start{c.Event.Time, time.Now()})
		}
		return model.Result{}, nil
	})
	o := engine.Options{Store: store, Types: []engine.HandlerType{timed}, Bundle: enginetest.Load(t, timers, timed)}
	first := enginetest.Start(t, o)
	enginetest.Start(t, o)
	at := time.Now().Add(wait).UTC()
	results, err := first.Submit(t.Context(), []intake.Submission{
		{Event: model.Event{Type: "waits"}}, {Event: model.Event{Type: "plain", At: at}},
	})
	if err != nil || results[0].Err != nil || results[1].Err != nil {
		t.Fatalf("submit: %v, %+v", err, results)
	}
	p := newProbe(t, store)
	p.eventually("all that is due", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(starts["waits/b/after"]) > 0 && len(starts["plain/a/now"]) > 0 && len(starts["ticks/a/tick"]) > 2
	})
	mu.Lock()
	defer mu.Unlock()
	for path, all := range starts {
		seen := map[time.Time]bool{}
		for _, s := range all {
			// Nothing is early. Databases keep microseconds, and runs milliseconds.
			if over := s.at.Sub(s.due); over < -time.Millisecond || over > lag.Allow(late) {
				t.Errorf("%s was due at %s and started %s later", path, s.due, over)
			}
			if seen[s.due] {
				t.Errorf("%s was started twice for %s", path, s.due)
			}
			seen[s.due] = true
		}
	}
}
