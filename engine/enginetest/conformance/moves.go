package conformance

import (
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// bob moves runs.
var bob = store.Actor{Name: "bob", Reason: "fixed"}

// moveTo moves a run to another definition.
func (p *probe) moveTo(id string, version int64, bundle string) (asked bool) {
	p.Helper()
	asked, err := p.Runs.Move(p.Context(), store.Move{Run: id, Bundle: bundle}, version, bob)
	p.must(err)
	return asked
}

var moveCases = []storeCase{
	{"nodes tell by which definition they serve", func(p *probe) {
		node := p.join()
		p.equal("before the first beat", p.node(node.id).Bundle, "")
		node.beat()
		p.equal("after it", p.node(node.id).Bundle, "served")
		_, err := p.Ledger.Beat(p.Context(), node.id, lease, "another")
		p.must(err)
		p.equal("after a reload", p.node(node.id).Bundle, "another")
	}},
	{"a run that nobody works on is moved at once, and that is audited", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k2"), p.event("k3", unordered))
		held := node.wantClaims(ids...)
		park := change(held[0], model.Parked)
		park.Due = time.Now().Add(time.Hour)
		wait := change(held[2], model.Parked) // for an operator
		node.commit(park, change(held[1], model.Failed), wait)
		last := int64(0)
		for i, id := range ids {
			p.equal("asked", p.moveTo(id, 1, "other"), false)
			have := p.run(id)
			p.equal("bundle", have.Bundle, "other")
			p.equal("move", have.Move, "")
			p.equal("version", have.Version, int64(1))
			a := p.audits(0, 1)[0]
			p.equal("audited", []string{a.Kind, a.Name, a.By.Name, a.By.Reason}, []string{store.AuditRun, ids[i], "bob", "fixed"})
			p.equal("audited bundles", []bool{
				strings.Contains(string(a.Before), `"bundle":"bundle"`),
				strings.Contains(string(a.After), `"bundle":"other"`),
			},
				[]bool{true, true})
			if a.Revision <= last {
				p.Fatalf("audit of run %s: want a revision above %d, have %d", id, last, a.Revision)
			}
			last = a.Revision
		}
		p.equal("records in all", len(p.audits(0, 10)), len(ids))
		p.must(p.Runs.Retry(p.Context(), ids[1], bob))
		p.equal("bundle of the next claim", node.claimOne(ids[1]).Bundle, "other")
	}},
	{"the owner of a run is asked, and has done it when it says so", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k2"))
		c := node.wantClaims(ids...)[0]
		node.commit(change(c, model.Running)) // by its definition
		p.equal("nothing wanted", len(node.beat().Moves), 0)
		p.equal("asked", p.moveTo(ids[0], 99, "other"), true)
		p.equal("asked again", p.moveTo(ids[0], 0, "third"), true)
		p.equal("wanted", node.beat().Moves, []store.Move{{Run: ids[0], Bundle: "third"}})
		c.Version++
		node.commit(change(c, model.Running)) // goes on meanwhile
		p.equal("still wanted", p.run(ids[0]).Move, "third")
		c.Version++
		back := change(c, model.Waiting)
		back.Bundle, back.Moved = "third", true
		node.commit(back)
		have := p.run(ids[0])
		p.equal("moved", []string{have.Bundle, have.Move, string(have.Status)}, []string{"third", "", "waiting"})
		p.equal("nothing wanted any more", len(node.beat().Moves), 0)
		claimed := node.claimOne(ids[0])
		p.equal("claimed", []string{claimed.Bundle, claimed.Move}, []string{"third", ""})
	}},
	{"whoever owns a run next is told when its owner dies or parks it", func(p *probe) {
		ids := p.accept(p.event("k"))
		node, held := p.dying(ids...)
		node.commit(change(held[0], model.Running))
		p.equal("asked", p.moveTo(ids[0], 0, "other"), true)
		live := p.join()
		live.takeOver(1)
		c := live.claimOne(ids[0])
		p.equal("told", []string{c.Bundle, c.Move}, []string{"bundle", "other"})
		park := change(c, model.Parked)
		park.Due = time.Now().Add(20 * time.Millisecond)
		live.commit(park)
		live.waitReady()
		p.equal("told again", live.claimOne(ids[0]).Move, "other")
	}},
	{"a move looks at the version, and at whether the run goes on at all", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k2"), p.event("k3"))
		held := node.wantClaims(ids...)
		node.finish(held[0])
		node.commit(change(held[1], model.Failed))
		back := change(held[2], model.Waiting)
		back.Bundle, back.Checkpoint = "", nil // not begun after all
		node.commit(back)
		before := p.audits(0, 10)
		for _, c := range []struct {
			run     string
			version int64
			want    error
		}{{ids[0], 1, store.ErrConflict}, {ids[1], 0, store.ErrStale}, {ids[2], 1, store.ErrConflict}, {"none", 0, store.ErrNotFound}} {
			_, err := p.Runs.Move(p.Context(), store.Move{Run: c.run, Bundle: "other"}, c.version, bob)
			p.wantErr("move of run "+c.run, err, c.want)
		}
		p.equal("audit", p.audits(0, 10), before)
	}},
	{"runs of a definition and of others are found", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k2"), p.event("k3"), p.event("k4"))
		held := node.wantClaims(ids...)
		for i, bundle := range []string{"old", "new", "old", ""} {
			c := change(held[i], model.Failed)
			c.Bundle = bundle
			if i == 2 {
				c.Status = model.Succeeded
			}
			node.commit(c)
		}
		p.equal("live", p.oldest(store.RunFilter{Other: "new", Live: true}), []string{ids[0]})
		p.equal("all", p.oldest(store.RunFilter{Other: "new"}), []string{ids[0], ids[2]})
		p.equal("of one", p.oldest(store.RunFilter{Bundle: "old"}), []string{ids[0], ids[2]})
		p.equal("failed of one", p.oldest(store.RunFilter{Bundle: "old", Status: model.Failed}), ids[:1])
	}},
}
