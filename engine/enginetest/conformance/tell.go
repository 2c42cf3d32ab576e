package conformance

import (
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// tellCases are for the events about ends that the store makes itself.
var tellCases = []storeCase{
	{"a cancel accepts the events about the end that it makes", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k"), p.event("k2"), p.event("k3"), p.event("s", at(time.Now().Add(time.Hour))), p.event("f", unordered))
		c := node.begin(ids[0], ids[2], ids[3], ids[5])
		park := change(c[0], model.Parked)
		park.Due = time.Now().Add(time.Hour)
		node.commit(park, change(c[1], model.Parked), change(c[2], model.Failed), change(c[3], model.Failed))
		for i, id := range ids {
			end := p.Runs.Cancel
			if i == 3 || i == 4 { // failed, not begun
				end = p.Runs.Undo
			}
			tell, again := p.tell(0), p.tell(0)
			p.must(end(p.Context(), id, steerer, tell))
			p.wantStatus(id, model.Cancelled)
			p.told(tell)
			p.wantErr("cancel again", end(p.Context(), id, steerer, again), store.ErrConflict)
			p.untold(again)
		}
	}},
	{"events about another end of the run are refused", func(p *probe) {
		node := p.join()
		id := p.accept(p.event("k"))[0]
		node.commit(change(node.claimOne(id), model.Failed))
		p.must(p.Runs.Retry(p.Context(), id, steerer))
		node.commit(change(node.claimOne(id), model.Failed))
		old, tell := p.tell(0), p.tell(1)
		p.wantErr("cancel", p.Runs.Cancel(p.Context(), id, steerer, old), store.ErrStale)
		p.wantStatus(id, model.Failed)
		p.untold(old)
		p.must(p.Runs.Cancel(p.Context(), id, steerer, tell))
		p.told(tell)
	}},
	{"the owner of a run tells of its end", func(p *probe) {
		node := p.join()
		id := p.accept(p.event("k"))[0]
		c := node.claimOne(id)
		tell := p.tell(0)
		p.must(p.Runs.Cancel(p.Context(), id, steerer, tell))
		p.untold(tell)
		end := change(c, model.Cancelled)
		end.Emit = tell.Events
		node.commit(end)
		p.told(tell)
	}},
}

// tell makes an event about the end of a run with this generation.
func (p *probe) tell(generation int) store.Tell {
	in := p.event("told", unordered)
	in.Dedup = false
	in.Key = in.Event.ID
	return store.Tell{Generation: generation, Events: []model.Intake{in}}
}

func (p *probe) told(tell store.Tell) {
	p.Helper()
	p.eventually("the event about the end", func() bool {
		_, err := p.Runs.Run(p.Context(), tell.Events[0].ID)
		return err == nil // the event may have gone to another database first
	})
}

func (p *probe) untold(tell store.Tell) {
	p.Helper()
	_, err := p.Runs.Run(p.Context(), tell.Events[0].ID)
	p.wantErr("the event about an end that is not made", err, store.ErrNotFound)
}
