package conformance

import (
	"slices"
	"testing"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

const day = 24 * time.Hour

// Retention checks how long a store keeps the ended runs of pipelines, and the ids of their events. age makes all that is in the store
// older.
func Retention(t *testing.T, s store.Store, age func(t *testing.T, by time.Duration)) {
	p := newProbe(t, s)
	node := p.join()
	keep := store.Retention{Keep: 7 * day, Pipelines: map[string]time.Duration{"brief": day, "long": 30 * day}}
	runs := map[string]model.Intake{}
	add := func(name, pipeline string, with ...func(*model.Intake)) model.Intake {
		in := p.event(name, append(with, func(in *model.Intake) { in.Pipeline = pipeline })...)
		runs[name] = in
		return in
	}
	for _, pipeline := range []string{"brief", "made", "long"} {
		node.endAs(model.Succeeded, add(pipeline, pipeline))
	}
	for _, at := range []string{"2026-01-01", "2026-01-02"} {
		node.endAs(model.Succeeded, add(at, "brief", func(in *model.Intake) {
			in.Event.ID, in.Event.Source, in.Event.Inner = at, "procaas/trigger/tick", true
		}))
	}
	node.endAs(model.Failed, add("failed", "brief"))
	p.accept(add("waits", "brief"))

	left := func(names ...string) {
		t.Helper()
		p.trim(keep)
		for name, in := range runs {
			_, err := p.Runs.Run(p.Context(), in.ID)
			p.equal("run of "+name+" is left", err == nil, slices.Contains(names, name))
		}
	}
	known := func(names ...string) {
		t.Helper()
		for name, in := range runs {
			run, err := p.Inbox.EventRun(p.Context(), in.Event.Namespace(), in.Event.ID)
			p.must(err)
			p.equal("event of "+name+" is known", run == in.ID, slices.Contains(names, name))
		}
	}
	left("brief", "made", "long", "2026-01-01", "2026-01-02", "failed", "waits")
	age(t, 3*day)
	left("made", "long", "failed", "waits")
	again := p.acceptFor(0, runs["brief"])
	p.equal("an event of a run that left early", again[0], store.Accepted{Run: runs["brief"].ID, Duplicate: true})
	age(t, 6*day) // nine in all
	left("long", "failed", "waits")
	known("long", "2026-01-02", "failed", "waits")
	again = p.acceptFor(0, runs["long"])
	p.equal("an event of a run that is kept", again[0], store.Accepted{Run: runs["long"].ID, Duplicate: true})
	age(t, 30*day)
	left("failed", "waits")
	known("2026-01-02", "failed", "waits")
}

// trim trims until nothing is left to do.
func (p *probe) trim(keep store.Retention) {
	p.Helper()
	for range 100 {
		more, err := p.Trimmer.Trim(p.Context(), keep)
		p.must(err)
		if !more {
			return
		}
	}
	p.Fatal("want an end of what can be trimmed, have none after 100 parts")
}
