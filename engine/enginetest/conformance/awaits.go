package conformance

import (
	"fmt"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// ofType makes an event of another type.
func ofType(t string) func(*model.Intake) {
	return func(in *model.Intake) { in.Event.Type = t }
}

// listen makes the change that parks a run until there are events.
func (p *probe) listen(c store.Claimed, heard int64, types ...string) model.Change {
	ch := change(c, model.Parked)
	ch.Due, ch.Awaits, ch.Heard = time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond), types, heard
	return ch
}

// pending lists the pending events of a key.
func (p *probe) pending(key string, after int64, types ...string) []model.Pending {
	p.Helper()
	out, err := p.Inbox.Pending(p.Context(), "orders", key, types, after, 100)
	p.must(err)
	return out
}

// keep makes the change that keeps the event of a run.
func keep(c store.Claimed, age time.Duration) model.Change {
	ch := change(c, model.Waiting)
	ch.Checkpoint, ch.Bundle = nil, ""
	ch.Due, ch.ErrorClass, ch.Error = time.Now().Add(age).UTC().Truncate(time.Microsecond), model.ClassKept, "kept"
	return ch
}

// kept counts what a key keeps.
func (p *probe) kept(key string) store.Kept {
	p.Helper()
	k, err := p.Inbox.Kept(p.Context(), "orders", key)
	p.must(err)
	return k
}

func runsOf(pending []model.Pending) []string {
	ids := []string{}
	for _, e := range pending {
		ids = append(ids, e.Run)
	}
	return ids
}

var awaitCases = []storeCase{
	{"an event that comes wakes the run of its key that waits for its type", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("other"))
		runs := node.wantClaims(ids...)
		node.commit(p.listen(runs[0], 0, "paid", "void"), p.listen(runs[1], 0, "paid"))
		node.wantClaims()
		unorderedID := p.accept(p.event("k", ofType("sent")), p.event("k", ofType("paid"), unordered))[1]
		node.wantClaims(unorderedID) // which stands for itself
		paid := p.event("k", ofType("paid"))
		p.accept(paid)
		c := node.claimOne(ids[0])
		p.equal("generation", c.Generation, 0)
		have := p.pending("k", 0, "paid", "void")
		if len(have) != 1 || have[0].Run != paid.ID || have[0].Position <= 0 {
			p.Fatalf("pending: have %+v", have)
		}
		p.equal("event", have[0].Event, paid.Event)
		p.wantStatus(ids[1], model.Parked)
		p.equal("runs that wait for an event", p.oldest(store.RunFilter{Awaits: true}), ids[1:])
	}},
	{"an event that was there before the run was parked wakes it at once", func(p *probe) {
		node := p.join()
		c := node.claimOne(p.accept(p.event("k"))[0])
		p.accept(p.event("k", ofType("paid")))
		node.commit(p.listen(c, 0, "paid"))
		node.claimOne(c.ID)
	}},
	{"what has been heard does not wake again", func(p *probe) {
		node := p.join()
		c := node.claimOne(p.accept(p.event("k"))[0])
		p.accept(p.event("k", ofType("paid")))
		heard := p.pending("k", 0, "paid")[0].Position
		node.commit(p.listen(c, heard, "paid"))
		node.wantClaims()
		p.equal("behind it", len(p.pending("k", heard, "paid")), 0)
		p.accept(p.event("k", ofType("paid")))
		node.claimOne(c.ID)
		p.equal("behind it", len(p.pending("k", heard, "paid")), 1)
	}},
	{"an emitted event wakes, and one whose time comes", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k2"), p.event("k3"))
		runs := node.wantClaims(ids...)
		node.commit(p.listen(runs[0], 0, "paid"), p.listen(runs[1], 0, "paid"))
		emits := change(runs[2], model.Running)
		emits.Emit = []model.Intake{p.event("k", ofType("paid"))}
		node.commit(emits)
		node.claimOne(ids[0])
		p.accept(p.event("k2", ofType("paid"), at(time.Now().Add(300*time.Millisecond))))
		p.equal("before its time", len(p.pending("k2", 0, "paid")), 0)
		p.eventually("the run is ready", func() bool {
			node.beat()
			got := node.claim(10)
			return len(got) == 1 && got[0].ID == ids[1]
		})
		p.equal("at its time", len(p.pending("k2", 0, "paid")), 1)
	}},
	{"a run takes the events of others, which end", func(p *probe) {
		node := p.join()
		first := p.event("k")
		paid := p.event("k", ofType("paid"))
		sent := p.event("k", ofType("sent"))
		later := p.event("k", ofType("paid"))
		c := node.claimOne(p.accept(first, paid, sent, later)[0])
		p.equal("pending", runsOf(p.pending("k", 0, "paid", "sent")), []string{paid.ID, sent.ID, later.ID})
		some, err := p.Inbox.Pending(p.Context(), "orders", "k", []string{"paid", "sent"}, 0, 2)
		p.must(err)
		p.equal("some", len(some), 2)
		take := change(c, model.Running)
		take.Take = []model.Taken{{Run: paid.ID, Reason: "taken by " + c.ID}}
		node.commit(take)
		c.Version++
		r := p.wantStatus(paid.ID, model.Succeeded)
		p.equal("reason", r.Reason, "taken by "+c.ID)
		p.equal("pending", runsOf(p.pending("k", 0, "paid", "sent")), []string{sent.ID, later.ID})
		p.wantStatus(c.ID, model.Running)
		end := change(c, model.Succeeded)
		end.Take = []model.Taken{{Run: later.ID, Reason: "too"}}
		node.commit(end)
		p.wantStatus(later.ID, model.Succeeded)
		node.claimOne(sent.ID)
		p.equal("one that comes again", p.acceptFor(0, paid)[0], store.Accepted{Run: paid.ID, Duplicate: true})
	}},
	{"an event that is not pending any more cannot be taken", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k", ofType("paid")), p.event("k2"))
		runs := node.wantClaims(ids[0], ids[2])
		p.must(p.Runs.Cancel(p.Context(), ids[1], steerer, store.Tell{}))
		take := change(runs[0], model.Running)
		take.Take = []model.Taken{{Run: ids[1], Reason: "too late"}}
		p.wantErr("cancelled", node.commitErrs(take)[0], store.ErrStale)
		p.wantStatus(ids[1], model.Cancelled)
		take.Take[0].Run = ids[2]
		p.wantErr("of another key", node.commitErrs(take)[0], store.ErrStale)
		take.Take[0].Run = ids[0]
		p.wantErr("itself", node.commitErrs(take)[0], store.ErrStale)
		take.Take = nil
		node.commit(take)
	}},
	{"a run that waits for others is ready when one of them is over", func(p *probe) {
		node := p.join()
		caller, called := p.event("k"), p.event("c", unordered)
		ids := p.accept(caller, called)
		runs := node.wantClaims(ids...)
		waits := change(runs[0], model.Parked)
		waits.Due, waits.Calls = time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond), []string{called.ID}
		node.commit(waits)
		node.wantClaims()
		over := change(runs[1], model.Succeeded)
		over.Wakes = caller.ID
		node.commit(over)
		c := node.claimOne(caller.ID)
		waits.Version = c.Version
		node.commit(waits) // for one that is over
		node.claimOne(caller.ID)
	}},
	{"a failure is the end of a call, too", func(p *probe) {
		node := p.join()
		caller, called := p.event("k"), p.event("c", unordered)
		ids := p.accept(caller, called)
		runs := node.wantClaims(ids...)
		over := change(runs[1], model.Failed)
		over.Wakes = caller.ID
		node.commit(over) // the caller is not parked yet
		waits := change(runs[0], model.Parked)
		waits.Due, waits.Calls = time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond), []string{called.ID}
		node.commit(waits)
		node.claimOne(caller.ID)
	}},
	{"a kept event lets its key go on, and another run takes it", func(p *probe) {
		node := p.join()
		paid, other := p.event("k", ofType("paid")), p.event("k2", ofType("paid"))
		p.accept(paid, other)
		runs := node.wantClaims(paid.ID, other.ID)
		p.equal("kept before", runs[0].Kept, false)
		node.commit(keep(runs[0], time.Hour), keep(runs[1], time.Hour))
		r := p.wantStatus(paid.ID, model.Waiting)
		p.equal("class", r.ErrorClass, model.ClassKept)
		p.equal("due", r.Due.IsZero(), false)
		p.equal("kept by k", p.kept("k").Events, 1)
		p.equal("has bytes", p.kept("k").Bytes > 0, true)
		p.equal("kept by others", p.kept("k3"), store.Kept{})
		d, err := p.Inbox.Depth(p.Context())
		p.must(err)
		for i := range d.Aside {
			p.equal("since", d.Aside[i].Since.IsZero(), false)
			d.Aside[i].Since = time.Time{}
		}
		p.equal("aside", d.Aside, []store.AsideRuns{{Pipeline: "orders", Place: store.AsideKept, Runs: 2}})

		again := p.acceptFor(node.id, p.event("k", owned))[0] // kept events are no reason to wait
		p.equal("begins at once", again.Claimed != nil, true)
		have := p.pending("k", 0, "paid")
		if len(have) != 1 || have[0].Run != paid.ID || !have[0].Kept {
			p.Fatalf("pending: have %+v", have)
		}
		later := p.event("k", ofType("paid"))
		p.accept(later)
		have = p.pending("k", 0, "paid")
		p.equal("in their order", runsOf(have), []string{paid.ID, later.ID})
		p.equal("the later one is not kept", have[1].Kept, false)
		take := change(*again.Claimed, model.Running)
		take.Take = []model.Taken{{Run: paid.ID, Reason: "taken"}}
		node.commit(take)
		p.equal("reason", p.wantStatus(paid.ID, model.Succeeded).Reason, "taken")
		p.equal("kept by k", p.kept("k"), store.Kept{})
		p.must(p.Runs.Cancel(p.Context(), other.ID, steerer, store.Tell{}))
		p.wantStatus(other.ID, model.Cancelled)
		p.equal("kept by k2", p.kept("k2"), store.Kept{})
	}},
	{"a kept event gets its turn again at its time, and knows that it was kept", func(p *probe) {
		node := p.join()
		paid := p.event("k", ofType("paid"))
		node.commit(keep(node.claimOne(p.accept(paid)[0]), 300*time.Millisecond))
		node.wantClaims()
		var again []store.Claimed
		p.eventually("its time", func() bool {
			node.beat()
			again = append(again, node.claim(10)...)
			return len(again) == 1
		})
		p.equal("run", again[0].ID, paid.ID)
		p.equal("kept", again[0].Kept, true)
		p.equal("kept by k", p.kept("k"), store.Kept{})
		over := change(again[0], model.Ignored)
		over.Reason, over.Bundle = "nobody took it", ""
		node.commit(over)
		p.wantStatus(paid.ID, model.Ignored)
		p.must(p.Runs.Retry(p.Context(), paid.ID, steerer))
		p.equal("kept after a retry", node.claimOne(paid.ID).Kept, false)
	}},
	{"what no key can keep is refused while no run of it is in flight", func(p *probe) {
		node := p.join()
		keeps := func(in *model.Intake) { in.Keep, in.Event.Type = true, "paid" }
		var all []model.Intake
		for range store.KeptEvents {
			all = append(all, p.event("k", keeps))
		}
		p.accept(all...) // the first of them is in flight, and the others may find a run that takes them
		for range all {
			node.commit(keep(node.claim(1)[0], time.Hour))
		}
		p.equal("kept", p.kept("k").Events, store.KeptEvents)
		p.equal("full", p.kept("k").IsFull(), true)
		last := p.event("k", keeps)
		p.wantErr("full", p.acceptFor(0, last)[0].Err, store.ErrFull)
		p.equal("of another key", p.acceptFor(0, p.event("k2", keeps))[0].Err, nil)
		p.equal("of another type", p.acceptFor(0, p.event("k"))[0].Err, nil)
		p.equal("while a run is in flight", p.acceptFor(0, last)[0], store.Accepted{Run: last.ID})
	}},
	{"of an event and the parking at once the run hears", func(p *probe) {
		node := p.join()
		for round := range 60 {
			key := fmt.Sprintf("k%d", round)
			c := node.claimOne(p.accept(p.event(key))[0])
			paid := p.event(key, ofType("paid"))
			p.together(2, func(i int) error {
				if i == 0 {
					_, err := p.Inbox.Accept(p.Context(), 0, []model.Intake{paid})
					return err
				}
				return node.tryCommit(p.listen(c, 0, "paid"))
			})
			node.claimOne(c.ID)
			node.commit(func() model.Change {
				ch := change(c, model.Succeeded)
				ch.Version, ch.Take = c.Version+1, []model.Taken{{Run: paid.ID}}
				return ch
			}())
		}
	}},
	{"an event is taken once, whoever else wants it gone", func(p *probe) {
		node := p.join()
		for round := range 40 {
			key := fmt.Sprintf("k%d", round)
			ids := p.accept(p.event(key), p.event(key, ofType("paid")))
			c := node.claimOne(ids[0])
			take := change(c, model.Running)
			take.Take = []model.Taken{{Run: ids[1]}}
			var errs []error
			p.together(2, func(i int) (err error) {
				if i == 0 {
					errs, err = p.Ledger.Commit(p.Context(), node.id, []model.Change{take})
					return err
				}
				_ = p.Runs.Cancel(p.Context(), ids[1], steerer, store.Tell{}) // too late, perhaps
				return nil
			})
			want := model.Succeeded
			if errs[0] != nil {
				p.wantErr("taken late", errs[0], store.ErrStale)
				want = model.Cancelled
			}
			p.wantStatus(ids[1], want)
		}
	}},
}
