package conformance

import (
	"slices"

	"procaas/engine/model"
	"procaas/engine/store"
)

// left makes succeeded runs with left out handlers. They end in different ways: only the end, with
// a change of the key, and alone.
func (n *member) left(path string) (ids []string) {
	n.Helper()
	for i, in := range []model.Intake{n.event("plain"), n.event("kept"), n.event("alone", unordered)} {
		n.accept(in)
		c := change(n.claimOne(in.ID), model.Succeeded)
		c.Pipeline, c.Bundle, c.Alone = "p", "b", !in.Ordered
		c.LeftOut = []model.LeftOut{{Path: "p/s/other", Reason: model.LeftByFailure}, {Path: path, Reason: model.LeftByWait}}
		if i == 1 {
			c.State = "open"
		}
		n.commit(c)
		ids = append(ids, in.ID)
	}
	return ids
}

// labelled sets the labels of an event.
func labelled(labels string) func(*model.Intake) {
	return func(in *model.Intake) { in.Event.Labels = labels }
}

var leftOutCases = []storeCase{
	{"runs are found by their labels, wherever they are", func(p *probe) {
		node := p.join()
		in := []model.Intake{
			p.event("a", labelled("city=berlin,vip=yes")), p.event("c", labelled("city=berlin"), unordered),
			p.event("f", labelled("vip=no"), skipping), p.event("b"), p.event("d", labelled("city=bern,z=1")), p.event("e"),
		}
		ids := p.accept(in...)
		check := func() {
			p.Helper()
			for filter, want := range map[string][]string{
				"city=berlin": {ids[0], ids[1]}, "city": {ids[0], ids[1], ids[4]}, "city=berlin,vip": {ids[0]},
				"vip": {ids[0], ids[2]}, "vip=yes,city=berlin": {ids[0]},
				"city=ber": {}, "ity=berlin": {}, "z=1": {ids[4]}, "berlin": {}, "cit": {},
			} {
				p.equal("labels "+filter, p.oldest(store.RunFilter{Labels: filter}), want)
			}
			p.equal("and a key", p.oldest(store.RunFilter{Labels: "city", Key: "d"}), []string{ids[4]})
		}
		check()
		node.finish(node.claimOne(ids[0]))
		end := change(node.claimOne(ids[1]), model.Succeeded)
		end.Alone = true
		node.commit(end)
		if err := p.Runs.Cancel(p.Context(), ids[4], steerer, store.Tell{}); err != nil {
			p.Fatal(err)
		}
		ignored := change(node.claimOne(ids[2]), model.Ignored)
		node.commit(ignored)
		check()
		if r := p.run(ids[0]); r.Event.Labels != "city=berlin,vip=yes" {
			p.Errorf("want the labels of the event, have %q", r.Event.Labels)
		}
		if err := p.Runs.Retry(p.Context(), ids[2], steerer); err != nil {
			p.Fatal(err)
		}
		check()
	}},
	{"runs are found by what they left out", func(p *probe) {
		node := p.join()
		ids := node.left("p/s/tell")
		other := node.left("p/s/tell-more")
		node.finish(node.claimOne(p.accept(p.event("fine"))[0]))
		for path, want := range map[string][]string{
			"p/s/tell": ids, "p/s/tell-more": other, "p/s/other": slices.Concat(ids, other), "p/s": slices.Concat(ids, other),
			"p": slices.Concat(ids, other), "p/s/te": {}, "s/tell": {}, "tell": {},
		} {
			p.equal("left out "+path, p.oldest(store.RunFilter{LeftOut: path}), want)
			n := 0
			counts, err := p.Runs.Count(p.Context(), store.RunFilter{LeftOut: path})
			if err != nil {
				p.Fatal(err)
			}
			for _, c := range counts {
				n += c.Runs
			}
			p.equal("how many left out "+path, n, len(want))
		}
		for by, want := range map[string][]string{model.LeftByWait: ids, model.LeftBySwitch: {}} {
			p.equal("left out by "+by, p.oldest(store.RunFilter{LeftOut: "p/s/tell", LeftBy: by}), want)
		}
		p.equal("of failed runs", p.oldest(store.RunFilter{LeftOut: "p", Status: model.Failed}), []string{})
		counts, err := p.Runs.Count(p.Context(), store.RunFilter{LeftOut: "p", Status: model.Failed})
		if err != nil || len(counts) != 0 {
			p.Fatalf("count of failed runs that have left something out: %v, %v", counts, err)
		}
		p.equal("of a key", p.oldest(store.RunFilter{LeftOut: "p", Key: "kept"}), []string{ids[1], other[1]})
	}},
	{"a run makes up what it left out, beside the order of its key", func(p *probe) {
		node := p.join()
		ids := node.left("p/s/tell")
		busy := p.accept(p.event("kept"))[0] // the key has gone on
		node.claimOne(busy)
		by := store.Actor{Name: "ann", Reason: "push is back"}
		for _, id := range ids {
			r := p.run(id)
			m := store.MakeUp{Run: id, Path: "p/s/tell", Version: r.Version, Checkpoint: []byte(`{"made":"up"}`)}
			for _, wrong := range []store.MakeUp{
				{Run: id, Path: "p/s/tell", Version: r.Version + 1}, {Run: id, Path: "p/s/not", Version: r.Version},
			} {
				p.wantErr("another version, or handler", p.Runs.MakeUp(p.Context(), wrong, by), store.ErrConflict)
			}
			if err := p.Runs.MakeUp(p.Context(), m, by); err != nil {
				p.Fatal(err)
			}
			p.wantErr("twice", p.Runs.MakeUp(p.Context(), m, by), store.ErrConflict)
			back := p.wantStatus(id, model.Waiting)
			if back.Generation != r.Generation+1 || back.Ordered || !back.Accepted.Equal(r.Accepted) || back.Pipeline != "p" || back.Bundle != "b" {
				p.Errorf("want the run back with the next generation, have %+v", back)
			}
			c := node.claimOne(id)
			p.equal("checkpoint", string(c.Checkpoint), `{"made":"up"}`)
			end := change(c, model.Succeeded)
			end.Pipeline, end.Bundle, end.LeftOut = "p", "b", []model.LeftOut{{Path: "p/s/other", Reason: model.LeftByFailure}}
			node.commit(end)
		}
		p.equal("what is still left out", p.oldest(store.RunFilter{LeftOut: "p/s/tell"}), []string{})
		p.equal("the other handler", p.oldest(store.RunFilter{LeftOut: "p/s/other"}), ids)
		p.equal("state", p.entity("kept").State, "open")
		p.wantErr("no such run", p.Runs.MakeUp(p.Context(), store.MakeUp{Run: "no-such", Path: "p/s/tell"}, by), store.ErrNotFound)
		p.wantErr("one that goes on", p.Runs.MakeUp(p.Context(), store.MakeUp{Run: busy, Path: "p/s/tell"}, by), store.ErrConflict)
		audit, err := p.Audits.Audit(p.Context(), store.AuditFilter{Kind: store.AuditRun, Limit: 10})
		if err != nil || len(audit) != len(ids) || audit[0].By != by {
			p.Errorf("want %d changes by ann, have %+v, %v", len(ids), audit, err)
		}
	}},
}
