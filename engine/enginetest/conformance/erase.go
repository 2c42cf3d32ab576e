package conformance

import (
	"errors"
	"fmt"

	"procaas/engine/model"
	"procaas/engine/store"
)

// endAs accepts an event and ends its run.
func (n *member) endAs(status model.Status, in model.Intake) {
	n.Helper()
	n.accept(in)
	c := change(n.claimOne(in.ID), status)
	c.State, c.Shared = "moved", []byte(`{"secret":"kept of the key"}`)
	n.commit(c)
}

var eraseCases = []storeCase{
	{"erasing a key removes its runs, its state and the ids of its events, and nothing else", func(p *probe) {
		node := p.join()
		var mine, others []model.Intake
		for _, s := range []model.Status{model.Succeeded, model.Cancelled, model.Ignored, model.Failed} {
			in := p.event("k", skipping)
			mine = append(mine, in)
			node.endAs(s, in)
		}
		for _, with := range []func(*model.Intake){unordered, func(in *model.Intake) { in.Event.Source = "procaas/queue/made"; in.Event.Inner = true }} {
			in := p.event("k", with)
			mine = append(mine, in)
			node.endAs(model.Succeeded, in)
		}
		for _, in := range []model.Intake{p.event("k", func(in *model.Intake) { in.Flow = "rides" }), p.event("k2")} {
			others = append(others, in)
			node.endAs(model.Succeeded, in)
		}
		d, err := p.Eraser.KeyData(p.Context(), "orders", "k")
		p.must(err)
		p.equal("what is there", d, store.KeyData{Failed: 1, Ended: 5, Entities: 1})
		gone, err := p.Eraser.EraseKey(p.Context(), "orders", "k")
		p.must(err)
		p.equal("what was removed", gone, store.KeyData{Failed: 1, Ended: 5, Entities: 1, Events: 6})
		for _, in := range mine {
			_, err := p.Runs.Run(p.Context(), in.ID)
			p.wantErr("run", err, store.ErrNotFound)
			run, err := p.Inbox.EventRun(p.Context(), in.Event.Namespace(), in.Event.ID)
			p.must(err)
			p.equal("run of the event", run, "")
		}
		_, err = p.Runs.Entity(p.Context(), "orders", "k")
		p.wantErr("entity", err, store.ErrNotFound)
		for _, in := range others {
			p.wantStatus(in.ID, model.Succeeded)
			run, err := p.Inbox.EventRun(p.Context(), in.Event.Namespace(), in.Event.ID)
			p.must(err)
			p.equal("run of another event", run, in.ID)
		}
		p.equal("state of another key", p.entity("k2").State, "moved")
		gone, err = p.Eraser.EraseKey(p.Context(), "orders", "k")
		p.must(err)
		p.equal("what a retry removes", gone, store.KeyData{})
		again := mine[0]
		again.ID = "again"
		p.accept(again)
		p.equal("state of the key anew", node.claimOne("again").Entity, store.EntityState{})
		_, err = p.Eraser.Scrub(p.Context(), true)
		p.must(err)
		p.wantStatus("again", model.Running)
	}},
	{"a key is not erased while one of its runs is unfinished", func(p *probe) {
		node := p.join()
		first, second := p.event("k", skipping), p.event("k")
		node.endAs(model.Succeeded, p.event("k"))
		node.endAs(model.Failed, first)
		p.accept(second)
		for _, step := range []func(){
			func() {}, // it waits
			func() { node.commit(change(node.claimOne(second.ID), model.Running)) },
		} {
			step()
			gone, err := p.Eraser.EraseKey(p.Context(), "orders", "k")
			p.wantErr("erase", err, store.ErrConflict)
			p.equal("what was removed", gone, store.KeyData{})
			p.wantStatus(first.ID, model.Failed)
			p.equal("state", p.entity("k").State, "moved")
		}
	}},
	{"many runs of a key are erased in parts", func(p *probe) {
		node := p.join()
		const many = 1100
		var batch []model.Intake
		for range many {
			batch = append(batch, p.event("k", unordered))
		}
		p.accept(batch...)
		for {
			runs := node.claim(1000)
			if len(runs) == 0 {
				break
			}
			node.finish(runs...)
		}
		gone, err := p.Eraser.EraseKey(p.Context(), "orders", "k")
		p.must(err)
		p.equal("what was removed", gone, store.KeyData{Ended: many, Events: many})
	}},
	{"the last firing of a trigger stays known when its key is erased", func(p *probe) {
		node := p.join()
		for _, at := range []string{"2026-01-01", "2026-01-02"} {
			node.endAs(model.Succeeded, p.event("k", func(in *model.Intake) {
				in.Event.ID, in.Event.Source, in.Event.Inner = at, "procaas/trigger/tick", true
			}))
		}
		gone, err := p.Eraser.EraseKey(p.Context(), "orders", "k")
		p.must(err)
		p.equal("what was removed", gone, store.KeyData{Ended: 2, Entities: 1, Events: 1})
		last, err := p.Inbox.LastEvent(p.Context(), "procaas/trigger/tick")
		p.must(err)
		p.equal("last firing", last, "2026-01-02")
	}},
	{"events that come while a key is erased stay whole or go as a whole", func(p *probe) {
		node := p.join()
		ids := make([][]model.Intake, 3)
		p.together(len(ids)+2, func(i int) error {
			for range 25 {
				switch {
				case i < len(ids):
					in := p.event("k", skipping)
					ids[i] = append(ids[i], in)
					if _, err := p.Inbox.Accept(p.Context(), 0, []model.Intake{in}); err != nil {
						return err
					}
				case i == len(ids):
					runs, err := p.Ledger.Claim(p.Context(), node.id, 1, "")
					if err != nil {
						return err
					}
					for _, r := range runs {
						c := change(r, model.Succeeded)
						c.State = "moved"
						if err := node.tryCommit(c); err != nil {
							return err
						}
					}
				default:
					if _, err := p.Eraser.EraseKey(p.Context(), "orders", "k"); err != nil && !errors.Is(err, store.ErrConflict) {
						return err
					}
				}
			}
			return nil
		})
		there := 0
		for _, all := range ids {
			for _, in := range all {
				_, err := p.Runs.Run(p.Context(), in.ID)
				if err != nil && !errors.Is(err, store.ErrNotFound) {
					p.Fatal(err)
				}
				run, failed := p.Inbox.EventRun(p.Context(), in.Event.Namespace(), in.Event.ID)
				p.must(failed)
				p.equal(fmt.Sprintf("event of run %s is known (%v)", in.ID, err), run != "", err == nil)
				if err == nil {
					there++
				}
			}
		}
		for range there {
			runs := node.claim(1)
			if len(runs) == 0 {
				break
			}
			c := change(runs[0], model.Succeeded)
			c.State = "last"
			node.commit(c)
			p.equal("state after the run", p.entity("k").State, "last")
		}
	}},
}
