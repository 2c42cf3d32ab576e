package conformance

import (
	"errors"
	"math"
	"slices"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

var inboxCases = []storeCase{
	{"an accepted event is a waiting run", func(p *probe) {
		in := p.event("k")
		in.Event = model.Event{
			ID: "e", Source: "shop", Type: "made", Key: "k", Time: time.UnixMicro(1).UTC(),
			Payload: map[string]any{
				"big": math.MaxInt64, "small": math.MinInt64, "whole": 100.0, "huge": 1e300, "pi": 3.5,
				"list": []any{nil, true, "\u0001 <é> 😀"}, "": map[string]any{},
			},
			At: time.UnixMicro(2).UTC(), DelayTolerance: time.Hour, Priority: 7, TraceParent: "00-ab-cd-01", TraceState: "a=b",
		}
		before := p.join().beat().Now
		p.accept(in)
		r := p.wantStatus(in.ID, model.Waiting)
		if r.Accepted.Before(before.Truncate(time.Microsecond)) || r.Accepted.Location() != time.UTC {
			p.Fatalf("accepted at %s, want a time after %s in UTC", r.Accepted, before)
		}
		p.equal("run", r, store.RunRecord{
			ID: in.ID, Event: in.Event, Flow: "orders", Key: "k", Ordered: true,
			Status: model.Waiting, Pipeline: "made", Accepted: r.Accepted,
		})
	}},
	{"a repetition gives the first run", func(p *probe) {
		in := p.event("k")
		p.accept(in)
		again := in
		again.ID = "other"
		p.equal("repetition", p.acceptFor(0, again), []store.Accepted{{Run: in.ID, Duplicate: true}})
		p.wantRuns(1)
	}},
	{"a repetition is found after the run has ended", func(p *probe) {
		in, node := p.event("k"), p.join()
		p.accept(in)
		node.finish(node.claimOne(in.ID))
		p.equal("repetition", p.acceptFor(node.id, in), []store.Accepted{{Run: in.ID, Duplicate: true}})
		p.wantRuns(1)
		node.wantClaims()
	}},
	{"a repetition within a batch is found", func(p *probe) {
		in := p.event("k")
		again, other := in, in
		again.ID = "again"
		other.ID, other.Hash = "other", "other"
		have := p.acceptFor(0, in, again, other, p.event("k"))
		p.equal("first three", have[:2], []store.Accepted{{Run: in.ID}, {Run: in.ID, Duplicate: true}})
		p.wantErr("reuse within the batch", have[2].Err, store.ErrConflict)
		p.equal("run of the first", have[2].Run, in.ID)
		if have[3].Err != nil {
			p.Fatalf("the event after a refused one: %v", have[3].Err)
		}
		p.wantRuns(2)
	}},
	{"the id of another event is refused, and only that event", func(p *probe) {
		in := p.event("k")
		p.accept(in)
		other := in
		other.ID, other.Hash, other.Key = "other", "other", "k2"
		have := p.acceptFor(0, other, p.event("k3"))
		p.wantErr("reuse", have[0].Err, store.ErrConflict)
		p.equal("run of the first", have[0].Run, in.ID)
		if have[1].Err != nil {
			p.Fatalf("the event after a refused one: %v", have[1].Err)
		}
		_, err := p.Runs.Entity(p.Context(), "orders", "k2")
		p.wantErr("entity of a refused event", err, store.ErrNotFound)
	}},
	{"ids of the engine's own events are known apart from those of submitters", func(p *probe) {
		outside, inner, again := p.event("k"), p.event("k"), p.event("k")
		inner.Event.ID, inner.Event.Inner = outside.Event.ID, true
		again.Event.ID, again.Event.Inner, again.Hash = outside.Event.ID, true, inner.Hash
		p.accept(outside, inner)
		p.equal("repetition", p.acceptFor(0, again), []store.Accepted{{Run: inner.ID, Duplicate: true}})
		p.wantRuns(2)
		if !p.wantStatus(inner.ID, model.Waiting).Event.Inner {
			p.Fatal("want it kept that the event is the engine's own")
		}
	}},
	{"the same id from another source is another event", func(p *probe) {
		a := p.event("k")
		b := p.event("k")
		b.Event.ID, b.Event.Source = a.Event.ID, ""
		p.accept(a, b)
		p.wantRuns(2)
	}},
	{"an event that is not marked is not looked for", func(p *probe) {
		a := p.event("k", func(in *model.Intake) { in.Dedup = false })
		b := a
		b.ID = "other"
		p.accept(a, b)
		p.wantRuns(2)
	}},
	{"data that cannot be stored changes nothing", func(p *probe) {
		bad := p.event("k")
		bad.Event.Payload = func() {}
		if _, err := p.Inbox.Accept(p.Context(), 0, []model.Intake{p.event("k"), bad}); err == nil {
			p.Fatal("a function as payload was accepted")
		}
		p.wantRuns(0)
	}},
	{"runs marked Own begin with the node", func(p *probe) {
		node := p.join()
		first, second, plain := p.event("k", owned), p.event("k", owned), p.event("k2")
		single, later := p.event("k3", owned, unordered), p.event("k4", owned, at(time.Now().Add(time.Hour)))
		have := p.acceptFor(node.id, first, second, plain, single, later)
		p.equal("claimed with the acceptance", have[0].Claimed, &store.Claimed{
			ID: first.ID, Event: first.Event, Flow: "orders", Key: "k", Ordered: true, Block: true,
			Accepted: p.run(first.ID).Accepted, Pipeline: "made",
		})
		for i, a := range have {
			if owns := i == 0 || i == 3; owns != (a.Claimed != nil) {
				p.Errorf("event %d: owned is %v, want %v", i, a.Claimed != nil, owns)
			}
		}
		p.equal("owner", p.wantStatus(first.ID, model.Running).Node, node.id)
		node.wantClaims(plain.ID)
		node.commit(change(*have[0].Claimed, model.Succeeded))
		node.wantClaims(second.ID)
	}},
	{"a run whose end is known is stored with it", func(p *probe) {
		node := p.join()
		plain := p.event("k", owned, unordered, func(in *model.Intake) { in.Dedup = false })
		all := []model.Intake{p.ending(plain), p.event("k2", owned), p.ending(p.event("k3", owned, unordered, labelled("city=bern")))}
		all[2].End.LeftOut = []model.LeftOut{{Path: "p/s/other", Reason: model.LeftByFailure}}
		have := p.acceptFor(node.id, all...)
		p.equal("results", []bool{have[0].Ended, have[1].Ended, have[2].Ended}, []bool{true, false, true})
		p.equal("claimed", []bool{have[0].Claimed != nil, have[1].Claimed != nil, have[2].Claimed != nil}, []bool{false, true, false})
		for _, in := range []model.Intake{all[0], all[2]} {
			r := p.wantStatus(in.ID, model.Succeeded)
			p.equal("run", r, store.RunRecord{
				ID: in.ID, Event: in.Event, Flow: "orders", Key: in.Key, Status: model.Succeeded, Version: 1,
				Pipeline: "made", Bundle: "bundle", Checkpoint: in.End.Checkpoint, Accepted: r.Accepted, Started: r.Started, Ended: r.Ended,
			})
			if began := in.End.Began; r.Accepted.After(began) || r.Started.After(began) || r.Ended.Before(began) {
				p.Errorf("accepted %s, started %s, ended %s, want the times in order with %s", r.Accepted, r.Started, r.Ended, began)
			}
		}
		node.wantClaims()
		p.equal("owned", node.beat().Owned, 1)
		p.equal("a repetition", p.acceptFor(node.id, all[2]), []store.Accepted{{Run: all[2].ID, Duplicate: true}})
		p.wantRuns(3)
		p.equal("by label", p.oldest(store.RunFilter{Labels: "city=bern"}), []string{all[2].ID})
		p.equal("what it left out", p.oldest(store.RunFilter{LeftOut: "p/s/other"}), []string{all[2].ID})
		p.equal("of its key", p.oldest(store.RunFilter{Key: "k3"}), []string{all[2].ID})
		next := p.accept(p.event("k4", unordered))
		p.equal("the order of acceptance", p.oldest(store.RunFilter{})[3:], next)
	}},
	{"a run whose end is known ends only with its own definition, on its node, and apart from a key", func(p *probe) {
		node := p.join()
		end := p.ending(p.event("k", owned, unordered))
		other := p.ending(p.event("k", owned, unordered))
		other.Bundle = "another"
		ordered := p.ending(p.event("k2", owned))
		later := p.ending(p.event("k", owned, unordered, at(time.Now().Add(time.Hour))))
		have := p.acceptFor(node.id, other, ordered, later)
		for i, wants := range []bool{true, true, false} {
			p.equal("ended", have[i].Ended, false)
			p.equal("claimed", have[i].Claimed != nil, wants)
		}
		p.equal("without a node", p.acceptFor(0, end), []store.Accepted{{Run: end.ID}})
		p.wantStatus(end.ID, model.Waiting)
		if err := p.Ledger.Leave(p.Context(), node.id, nil); err != nil {
			p.Fatal(err)
		}
		for _, dedup := range []bool{true, false} {
			late := p.ending(p.event("k", owned, unordered, func(in *model.Intake) { in.Dedup = dedup }))
			_, err := p.Inbox.Accept(p.Context(), node.id, []model.Intake{late})
			p.wantErr("accept for a node that is gone", err, store.ErrFenced)
		}
		p.wantRuns(4)
	}},
	{"an owned run knows its entity", func(p *probe) {
		node := p.join()
		p.accept(p.event("k"))
		c := change(node.claim(1)[0], model.Succeeded)
		c.State, c.Shared = "open", []byte(`{"n":1}`)
		node.commit(c)
		have := p.acceptFor(node.id, p.event("k", owned))
		p.equal("state", have[0].Claimed.Entity.State, "open")
		p.wantJSON("shared", have[0].Claimed.Entity.Shared, map[string]any{"n": 1})
	}},
	{"node 0 never owns", func(p *probe) {
		if a := p.acceptFor(0, p.event("k", owned)); a[0].Claimed != nil {
			p.Fatalf("claimed for nobody: %+v", a[0].Claimed)
		}
	}},
	{"a node that is gone accepts nothing", func(p *probe) {
		node := p.join()
		if err := p.Ledger.Leave(p.Context(), node.id, nil); err != nil {
			p.Fatal(err)
		}
		_, err := p.Inbox.Accept(p.Context(), node.id, []model.Intake{p.event("k", owned)})
		p.wantErr("accept", err, store.ErrFenced)
		p.wantRuns(0)
	}},
	{"the automaton refuses an event of an idle entity", func(p *probe) {
		from := func(states ...string) func(*model.Intake) {
			return func(in *model.Intake) { in.From = states }
		}
		node := p.join()
		refused := p.event("k", from("open"))
		have := p.acceptFor(0, refused)
		p.wantErr("event for another state", have[0].Err, store.ErrRejected)
		_, err := p.Runs.Entity(p.Context(), "orders", "k")
		p.wantErr("entity of a refused event", err, store.ErrNotFound)

		opens := p.event("k", from(""))
		have = p.acceptFor(0, opens, p.event("k", from("open")))
		if have[0].Err != nil || have[1].Err != nil {
			p.Fatalf("want both accepted, as the first may open the entity; have %+v", have)
		}
		p.equal("the refused one again", p.acceptFor(0, refused), []store.Accepted{{Run: refused.ID, Undecided: true}})
		c := change(node.claimOne(opens.ID), model.Succeeded)
		c.State = "closed"
		node.commit(c)
		for p.entity("k").Waiting > 0 {
			node.finish(node.claim(1)...)
		}
		have = p.acceptFor(0, p.event("k", from("open", "")), p.event("k", from("closed", "open")), opens)
		p.wantErr("event for another state", have[0].Err, store.ErrRejected)
		p.equal("the others", have[1:], []store.Accepted{{Run: have[1].Run}, {Run: opens.ID, Duplicate: true}})
	}},
	{"the automaton is asked whatever is to come later", func(p *probe) {
		with := func(states []string, when time.Time) model.Intake {
			in := p.event("k")
			in.From, in.Event.At = states, when
			return in
		}
		in := func(states ...string) model.Intake { return with(states, time.Time{}) }
		later := func(states ...string) model.Intake { return with(states, time.Now().Add(24*time.Hour)) }
		node := p.join()
		first := in("")
		p.accept(first)
		c := change(node.claimOne(first.ID), model.Succeeded)
		c.State = "open"
		node.commit(c)

		// A reminder waits, and is judged by the state at its time. One that no state allows is
		// refused.
		reminder := later("paid")
		have := p.acceptFor(0, reminder, with([]string{}, time.Now().Add(time.Hour)))
		p.equal("a reminder", have[0], store.Accepted{Run: reminder.ID, Undecided: true})
		p.wantErr("what no state allows", have[1].Err, store.ErrRejected)
		refused := in("paid")
		have = p.acceptFor(0, refused, in("paid"))
		p.wantErr("what the present state forbids", have[0].Err, store.ErrRejected)
		p.wantErr("the same again", have[1].Err, store.ErrRejected)
		p.wantRuns(2)
		one, two := in("open"), in("paid")
		have = p.acceptFor(0, later("open"), one, two)
		p.equal("what the present state allows", have[1], store.Accepted{Run: one.ID})
		p.equal("what comes behind it", have[2], store.Accepted{Run: two.ID, Undecided: true})

		// It is also judged while others submit: one of two creates the entity, and the other waits
		// for it.
		node.finish(node.claimOne(one.ID))
		node.finish(node.claimOne(two.ID))
		errs := make(chan error, 20)
		for i := range cap(errs) {
			event := in("open")
			if i%2 == 1 {
				event = in("paid")
			}
			go func() {
				a, err := p.Inbox.Accept(p.Context(), 0, []model.Intake{event})
				if err == nil && a[0].Err == nil && !a[0].Undecided && !slices.Contains(event.From, "open") {
					err = errors.New("an event that the state forbids was accepted though nothing was ahead of it")
				}
				errs <- err
			}()
		}
		for range cap(errs) {
			if err := <-errs; err != nil {
				p.Error(err)
			}
		}
	}},
	{"a failed run that blocks defers the automaton's answer, one that does not does not", func(p *probe) {
		node := p.join()
		for key, want := range map[string]error{"blocks": nil, "skips": store.ErrRejected} {
			in := p.event(key)
			in.Block = want == nil
			p.accept(in)
			node.commit(change(node.claimOne(in.ID), model.Failed))
			next := p.event(key)
			next.From = []string{"open"}
			if a := p.acceptFor(0, next); !errors.Is(a[0].Err, want) {
				p.Errorf("key %s: want error %v, have %v", key, want, a[0].Err)
			}
		}
	}},
	{"depth counts what waits and tells since when", func(p *probe) {
		wantDepth := func(want int) time.Time {
			p.Helper()
			d, err := p.Inbox.Depth(p.Context())
			if err != nil || d.Waiting != want {
				p.Fatalf("depth: want %d, have %d, %v", want, d.Waiting, err)
			}
			return d.Oldest
		}
		if oldest := wantDepth(0); !oldest.IsZero() {
			p.Fatalf("oldest of an empty inbox: %s", oldest)
		}
		p.accept(p.event("s", at(time.Now().Add(time.Hour))))
		if oldest := wantDepth(1); !oldest.IsZero() {
			p.Fatalf("oldest when none is due: %s", oldest)
		}
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k"), p.event("k2"))
		p.equal("oldest", wantDepth(4), p.run(ids[0]).Accepted)
		runs := node.wantClaims(ids[0], ids[2])
		p.equal("oldest of those that wait", wantDepth(2), p.run(ids[1]).Accepted)
		node.finish(runs...)
		wantDepth(2)
	}},
	{"depth counts what is set aside, by what it waits for", func(p *probe) {
		node := p.join()
		put := func(key string, end func(*model.Change)) string {
			in := p.event(key)
			in.Block = key == "blocks"
			p.accept(in)
			c := change(node.claimOne(in.ID), model.Parked)
			c.Pipeline, c.Due = "p", time.Now().Add(time.Hour)
			end(&c)
			node.commit(c)
			return in.ID
		}
		gate := func(c *model.Change) { c.Cause = "@orders p/s/h" }
		first := put("a", gate)
		put("b", gate)
		put("c", func(c *model.Change) { c.Pipeline, c.Cause = "q", "q hold" })
		put("d", func(c *model.Change) { c.Awaits = []string{"paid"} })
		put("e", func(c *model.Change) { c.Due = time.Time{} })
		put("f", func(c *model.Change) { c.Status, c.Due, c.Defer = model.Waiting, time.Time{}, true })
		put("blocks", func(c *model.Change) { c.Status, c.Due = model.Failed, time.Time{} })
		put("skips", func(c *model.Change) { c.Status, c.Due = model.Failed, time.Time{} })
		wantAside := func(want ...store.AsideRuns) []store.AsideRuns {
			p.Helper()
			d, err := p.Inbox.Depth(p.Context())
			if err != nil {
				p.Fatal(err)
			}
			have := slices.Clone(d.Aside)
			for i := range have {
				if have[i].Since.IsZero() || time.Since(have[i].Since).Abs() > time.Hour {
					p.Errorf("want a time of now, have %+v", have[i])
				}
				have[i].Since = time.Time{}
			}
			p.equal("set aside", have, want)
			return d.Aside
		}
		rest := []store.AsideRuns{
			{Pipeline: "p", Place: store.AsideAwaits, Runs: 1},
			{Pipeline: "p", Place: store.AsideBlocking, Runs: 1},
			{Pipeline: "p", Place: store.AsideFailed, Runs: 1},
			{Pipeline: "p", Place: store.AsideOperator, Runs: 1},
		}
		last := []store.AsideRuns{
			{Pipeline: "p", Place: store.AsideState, Runs: 1}, {Pipeline: "q", Place: store.AsideParked, Cause: "q hold", Runs: 1},
		}
		parked := store.AsideRuns{Pipeline: "p", Place: store.AsideParked, Cause: "@orders p/s/h", Runs: 2}
		before := wantAside(slices.Concat(rest, []store.AsideRuns{parked}, last)...)

		// A run that asks again and must continue to wait for the same cause keeps its waiting
		// time.
		if n, err := p.Runs.Release(p.Context(), "@orders p/s/h", 1); n != 1 || err != nil {
			p.Fatalf("release: want 1, have %d, %v", n, err)
		}
		again := change(node.claimOne(first), model.Parked)
		again.Pipeline, again.Due, again.Cause = "p", time.Now().Add(time.Hour), "@orders p/s/h"
		node.commit(again)
		after := wantAside(slices.Concat(rest, []store.AsideRuns{parked}, last)...)
		p.equal("since when runs wait for the service", after[4].Since, before[4].Since)

		// A run that waits for something else starts a new waiting time.
		if n, err := p.Runs.Release(p.Context(), "@orders p/s/h", 1); n != 1 || err != nil {
			p.Fatalf("release: want 1, have %d, %v", n, err)
		}
		other := change(node.claimOne(first), model.Parked)
		other.Pipeline, other.Due, other.Cause = "p", time.Now().Add(time.Hour), "p/s/h hold"
		node.commit(other)
		one, held := parked, parked
		one.Runs, held.Runs, held.Cause = 1, 1, "p/s/h hold"
		now := wantAside(slices.Concat(rest, []store.AsideRuns{one, held}, last)...)
		if !now[5].Since.After(before[4].Since) {
			p.Errorf("want the wait for a switch to begin anew, have %s and %s before", now[5].Since, before[4].Since)
		}
	}},
	{"an event that runs a run again is put on record, and found by that run", func(p *probe) {
		first, node := p.event("k"), p.join()
		p.accept(first)
		node.finish(node.claimOne(first.ID))
		p.accept(p.event("k")) // is in front of the following
		again := func(reason string) model.Intake {
			in := p.event("k")
			in.Event.ID, in.Event.Start = in.ID, []byte(`{"stage":1}`)
			in.Event.Rerun = &model.Rerun{Of: first.ID, Stage: "pay", By: "ann", Reason: reason}
			return in
		}
		one, two, refused := again("one"), again("two"), again("refused")
		refused.From = []string{}
		refused.Event.At = time.Now().Add(time.Hour)
		p.acceptFor(node.id, one, p.event("other"), two, refused, one)
		for _, source := range []string{first.Event.Source, one.Event.Source} {
			if last, err := p.Inbox.LastEvent(p.Context(), source); err != nil || last == two.ID {
				p.Errorf("want reruns apart from the events of their source, have %q, %v", last, err)
			}
		}
		if last, err := p.Inbox.LastEvent(p.Context(), model.RerunSource(first.ID)); err != nil || last != two.ID {
			p.Errorf("want the last rerun %s, have %q, %v", two.ID, last, err)
		}
		r := p.wantStatus(one.ID, model.Waiting)
		if !r.Blocked || string(r.Event.Start) != `{"stage":1}` || *r.Event.Rerun != *one.Event.Rerun {
			p.Errorf("want the rerun behind the other run of its key, with its start, have %+v", r)
		}
		audit, err := p.Audits.Audit(p.Context(), store.AuditFilter{Kind: store.AuditRun, Limit: 10})
		if err != nil || len(audit) != 2 || audit[0].Name != two.ID || audit[1].By != (store.Actor{Name: "ann", Reason: "one"}) {
			p.Errorf("want one record of each rerun, have %+v, %v", audit, err)
		}
	}},
	{"the last event of a source is known", func(p *probe) {
		last := func(source, want string) {
			p.Helper()
			if have, err := p.Inbox.LastEvent(p.Context(), source); err != nil || have != want {
				p.Fatalf("last event of %q: want %q, have %q, %v", source, want, have, err)
			}
		}
		last("tick", "")
		for _, id := range []string{"2026-01-01", "2026-01-10", "2026-01-02", "z"} {
			in := p.event("k")
			in.Event.Source, in.Event.ID = "tick", id
			if id == "z" {
				in.Event.Source = "tick2"
			}
			p.accept(in)
		}
		last("tick", "2026-01-10")
		upper := p.event("k")
		upper.Event.Source, upper.Event.ID = "tick2", "Za"
		p.accept(upper)
		last("tick2", "z")
		for id, want := range map[string]string{"Za": upper.ID, "Zb": ""} {
			if run, err := p.Inbox.EventRun(p.Context(), "tick2", id); err != nil || run != want {
				p.Errorf("run of the event %q: want %q, have %q, %v", id, want, run, err)
			}
		}
	}},
}

// wantRuns counts all runs.
func (p *probe) wantRuns(want int) {
	p.Helper()
	runs, _, err := p.Runs.List(p.Context(), store.RunFilter{Limit: 1000})
	if err != nil || len(runs) != want {
		p.Fatalf("want %d runs, have %d, %v", want, len(runs), err)
	}
}
