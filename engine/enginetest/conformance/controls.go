package conformance

import (
	"slices"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// control sets a control, or removes it with an empty value. It must succeed.
func (p *probe) control(path, value string) int64 {
	p.Helper()
	revision, err := p.setControl(path, value, -1)
	p.must(err)
	return revision
}

func (p *probe) setControl(path, value string, ifRevision int64) (int64, error) {
	var data []byte
	if value != "" {
		data = []byte(value)
	}
	return p.Settings.SetControl(p.Context(), path, data, ifRevision, store.Actor{Name: "ann", Reason: "why"})
}

// park claims the next run and parks it with a cause until a time.
func (n *member) park(id, cause string, due time.Time) {
	n.Helper()
	c := change(n.claimOne(id), model.Parked)
	c.Cause, c.Due = cause, due
	n.commit(c)
}

var controlCases = []storeCase{
	{"controls have revisions and can be removed", func(p *probe) {
		node := p.join()
		_, err := p.setControl("p", "", -1)
		p.wantErr("removing what is not there", err, store.ErrNotFound)
		_, err = p.setControl("p", `{"a": 1}`, 7)
		p.wantErr("another revision than none", err, store.ErrConflict)
		first, err := p.setControl("p", `{"a": 1}`, 0)
		p.must(err)
		second := p.control("p/s/h", `{"b": 2}`)
		_, err = p.setControl("p", `{"a": 2}`, 0)
		p.wantErr("none, where there is one", err, store.ErrConflict)

		controls, revision, err := p.Settings.Controls(p.Context())
		p.must(err)
		p.equal("revision", []int64{revision, node.beat().Revision}, []int64{second, second})
		p.equal("controls", controls, map[string]store.Setting{
			"p": {Value: []byte(`{"a": 1}`), Revision: first, Changed: controls["p"].Changed, By: store.Actor{Name: "ann", Reason: "why"}},
			"p/s/h": {
				Value: []byte(`{"b": 2}`), Revision: second, Changed: controls["p/s/h"].Changed,
				By: store.Actor{Name: "ann", Reason: "why"},
			},
		})
		configs, _, err := p.Settings.Configs(p.Context())
		p.must(err)
		p.equal("configs", configs, map[string]store.Setting{})

		_, err = p.setControl("p", "", second)
		p.wantErr("removing another revision", err, store.ErrConflict)
		third, err := p.setControl("p", "", first)
		p.must(err)
		p.equal("revision", node.beat().Revision, third)
		controls, _, err = p.Settings.Controls(p.Context())
		p.must(err)
		if len(controls) != 1 {
			p.Fatalf("want one control left, have %v", controls)
		}
		last := p.audits(0, 1)[0]
		if last.Kind != store.AuditControl || last.Name != "p" || string(last.Before) != `{"a": 1}` || string(last.After) != "null" {
			p.Fatalf("want the removal in the audit, have %+v", last)
		}
	}},
	{"parked runs are released by their cause", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("a"), p.event("b"), p.event("c"), p.event("d"), p.event("a"))
		late := time.Now().Add(time.Hour)
		node.park(ids[0], "p hold", late)
		node.park(ids[1], "p hold", late)
		node.park(ids[2], "q hold", late)
		node.park(ids[3], "", late)
		node.wantClaims()
		p.equal("causes", node.beat().Causes, []string{"p hold", "q hold"})

		for _, c := range []struct {
			cause       string
			limit, want int
		}{{"p", 10, 0}, {"p hold", 1, 1}, {"p hold", 10, 1}, {"p hold", 10, 0}} {
			n, err := p.Runs.Release(p.Context(), c.cause, c.limit)
			p.must(err)
			if n != c.want {
				p.Fatalf("release %d of %q: want %d, have %d", c.limit, c.cause, c.want, n)
			}
		}
		p.equal("causes", node.beat().Causes, []string{"q hold"})
		runs := node.wantClaims(ids[0], ids[1])

		// A run that parks again has its new cause.
		again := change(runs[0], model.Parked)
		again.Due = late
		node.commit(again)
		node.finish(runs[1])
		p.equal("causes", node.beat().Causes, []string{"q hold"})
		p.wantStatus(ids[4], model.Waiting)
	}},
	{"a parked run can be woken before its time", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("a"), p.event("b"))
		node.park(ids[0], "", time.Now().Add(time.Hour))
		running := node.claimOne(ids[1])
		for _, id := range []string{ids[1], ids[0], ids[0]} { // one that runs, and another one twice
			p.must(p.Runs.WakeRun(p.Context(), id))
		}
		woken := node.wantClaims(ids[0])
		node.finish(woken[0])
		node.finish(running)
	}},
	{"a parked run with a cause goes on at its time, too", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("a"))
		node.park(ids[0], "p hold", time.Now().Add(30*time.Millisecond))
		p.eventually("its time has come", func() bool {
			node.beat()
			return slices.Contains(idsOf(node.claim(1)), ids[0])
		})
		p.equal("causes", node.beat().Causes, []string{})
	}},
	{"the nodes that are alive are counted", func(p *probe) {
		var nodes []*member
		for i := range 3 {
			nodes = append(nodes, p.join())
			if have := nodes[i].beat().Nodes; have != i+1 {
				p.Fatalf("want %d nodes, have %d", i+1, have)
			}
		}
		nodes[0].leave(nil)
		if have := nodes[1].beat().Nodes; have != 2 {
			p.Fatalf("want 2 nodes after one has left, have %d", have)
		}
	}},
}
