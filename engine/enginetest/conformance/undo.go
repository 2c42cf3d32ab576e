package conformance

import (
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// begin claims runs and lets them begin.
func (n *member) begin(ids ...string) []store.Claimed {
	n.Helper()
	claimed := n.wantClaims(ids...)
	for i := range claimed {
		n.commit(change(claimed[i], model.Running))
		claimed[i].Version++
	}
	return claimed
}

// undoCases are for cancelled runs that undo what they have done.
var undoCases = []storeCase{
	{"undo asks the owner of a run, and whoever owns it next", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k2"), p.event("k3"))
		c := node.begin(ids...)
		for _, id := range ids {
			p.must(p.Runs.Undo(p.Context(), id, store.Actor{Name: "ann", Reason: "enough"}, store.Tell{}))
		}
		order := model.UndoOrder("enough")
		p.equal("asked", len(node.beat().Moves), 3)
		p.equal("kept", p.run(ids[0]).Move, order)
		a := p.audits(0, 1)[0]
		p.equal("audited", []string{a.Kind, a.Name, a.By.Name, a.By.Reason}, []string{store.AuditRun, ids[2], "ann", "enough"})
		p.equal("audited as undoing", strings.Contains(string(a.After), `"undoing":true`), true)

		// A node that has not seen the order cannot park or fail the run.
		park := change(c[0], model.Parked)
		park.Due = time.Now().Add(time.Hour)
		held := change(c[1], model.Parked)
		node.commit(park, held, change(c[2], model.Failed))
		for i, again := range node.wantClaims(ids...) {
			p.equal("order", again.Move, order)
			c[i] = again
		}

		// A node that follows the order can, and the order is done.
		park, held = change(c[0], model.Parked), change(c[1], model.Failed)
		park.Due, park.Undoing, held.Undoing = time.Now().Add(time.Hour), true, true
		node.commit(park, held)
		p.equal("parked", p.wantStatus(ids[0], model.Parked).Move, "")
		p.equal("failed", p.wantStatus(ids[1], model.Failed).Move, "")

		end := change(c[2], model.Cancelled)
		end.Reason, end.Undoing = "enough", true
		node.commit(end)
		p.equal("reason", p.wantStatus(ids[2], model.Cancelled).Reason, "enough")
	}},
	{"undo makes a run ready that no node owns, and ends one that has not begun or has failed", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k2"), p.event("k3"), p.event("k"), p.event("s", at(time.Now().Add(time.Hour))))
		c := node.begin(ids[:3]...)
		park := change(c[0], model.Parked)
		park.Due, park.Cause = time.Now().Add(time.Hour), "something"
		node.commit(park, change(c[1], model.Parked), change(c[2], model.Failed))
		for _, id := range ids {
			p.must(p.Runs.Undo(p.Context(), id, store.Actor{Name: "ann", Reason: "enough"}, store.Tell{}))
		}
		for _, i := range []int{2, 3, 4} { // failed, queued, scheduled
			p.equal("reason", p.wantStatus(ids[i], model.Cancelled).Reason, "enough")
		}
		for _, again := range node.wantClaims(ids[0], ids[1]) {
			p.equal("order", again.Move, model.UndoOrder("enough"))
		}
		p.wantErr("an ended one", p.Runs.Undo(p.Context(), ids[2], steerer, store.Tell{}), store.ErrConflict)
		p.wantErr("an unknown one", p.Runs.Undo(p.Context(), "nobody", steerer, store.Tell{}), store.ErrNotFound)
	}},
	{"a run that is to be undone is not moved, is given back with the order, and can be ended", func(p *probe) {
		node := p.join()
		id := p.accept(p.event("k"))[0]
		node.begin(id)
		p.must(p.Runs.Undo(p.Context(), id, store.Actor{Name: "ann", Reason: "enough"}, store.Tell{}))
		_, err := p.Runs.Move(p.Context(), store.Move{Run: id, Bundle: "other"}, 0, bob)
		p.wantErr("move", err, store.ErrConflict)
		node.leave([]string{})
		c := node.claimOne(id)
		p.equal("order", c.Move, model.UndoOrder("enough"))
		p.must(p.Runs.Cancel(p.Context(), id, store.Actor{Name: "ann", Reason: "now"}, store.Tell{}))
		p.wantErr("going on", node.commitErrs(change(c, model.Running))[0], store.ErrCancelled)
		node.commit(change(c, model.Cancelled))
		p.equal("reason", p.wantStatus(id, model.Cancelled).Reason, "now")
	}},
}
