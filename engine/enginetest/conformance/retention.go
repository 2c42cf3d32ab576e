package conformance

import (
	"slices"
	"strings"
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

// Archive checks how ended runs leave a store through an archive: only by Forget, and not if they have changed. age makes all that is in
// the store older.
func Archive(t *testing.T, s store.Store, age func(t *testing.T, by time.Duration)) {
	p := newProbe(t, s)
	node := p.join()
	keep := store.Retention{Keep: 7 * day, Pipelines: map[string]time.Duration{"brief": day, "long": 30 * day}, Archived: true}
	runs := map[string]model.Intake{}
	for _, name := range []string{"brief", "brief too", "made", "long"} {
		runs[name] = p.event(name, func(in *model.Intake) { in.Pipeline, _, _ = strings.Cut(name, " ") })
		node.endAs(model.Succeeded, runs[name])
	}
	past := func(limit int, bytes int64) []store.RunRecord {
		t.Helper()
		page, err := p.Trimmer.Past(p.Context(), keep, limit, bytes)
		p.must(err)
		return page
	}
	leaving := func(want ...string) (all []store.RunRecord) {
		t.Helper()
		p.trim(keep)
		for name, in := range runs {
			_, err := p.Runs.Run(p.Context(), in.ID)
			p.equal("run of "+name+" is left", err, nil)
		}
		all = past(100, 1<<20)
		var names []string
		for _, r := range all {
			p.equal("payload", r.Event.Payload, runs[r.Key].Event.Payload)
			names = append(names, r.Key)
		}
		slices.Sort(names)
		p.equal("leaving", names, want)
		return all
	}
	forget := func(gone ...store.RunRecord) {
		t.Helper()
		p.must(p.Trimmer.Forget(p.Context(), gone))
	}
	leaving()
	age(t, 3*day)
	all := leaving("brief", "brief too")
	p.equal("a page of one", len(past(1, 1<<20)), 1)
	p.equal("a page without room", len(past(100, 1)), 1)
	other := all[0]
	other.Version++
	forget(other) // it was read before the run went on
	all = leaving("brief", "brief too")
	forget(all[0])
	forget(all[0])
	delete(runs, all[0].Key)
	leaving(all[1].Key)
	again := p.acceptFor(0, runs[all[1].Key])
	p.equal("an event of a run that waits for the archive", again[0], store.Accepted{Run: all[1].ID, Duplicate: true})
	forget(all[1])
	delete(runs, all[1].Key)
	age(t, 6*day) // nine in all
	forget(leaving("made")...)
	delete(runs, "made")
	keep.Archived = false
	p.trim(keep)
	_, err := p.Runs.Run(p.Context(), runs["long"].ID)
	p.must(err)
}
