package conformance

import (
	"errors"
	"time"

	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
)

var nodeCases = []storeCase{
	{"numbers of nodes only grow", func(p *probe) {
		var last int64
		for range 5 {
			node := p.join()
			if node.id <= last {
				p.Fatalf("node %d after node %d", node.id, last)
			}
			last = node.id
			node.leave(nil)
		}
	}},
	{"a store that remembers nothing gives other numbers", func(p *probe) {
		node, other := p.join(), newProbe(p, p.open())
		if again := other.join(); again.id == node.id {
			p.Fatalf("another store has given the number %d, too", node.id)
		}
		node.beat()
		ids := p.accept(p.event("k"))
		held := node.wantClaims(ids...)
		other.accept(p.event("k", func(in *model.Intake) { in.ID = ids[0] }))

		_, err := other.Ledger.Beat(p.Context(), node.id, lease, "served")
		p.wantErr("beat of a node of another store", err, store.ErrForgotten)
		_, err = other.Ledger.Claim(p.Context(), node.id, 10, "")
		p.wantErr("claim of a node of another store", err, store.ErrFenced)
		_, err = other.Ledger.Commit(p.Context(), node.id, []model.Change{change(held[0], model.Succeeded)})
		p.wantErr("commit of a node of another store", err, store.ErrFenced)
		_, err = other.Inbox.Accept(p.Context(), node.id, []model.Intake{p.event("k2", owned)})
		p.wantErr("accept of a node of another store", err, store.ErrFenced)
		_, err = other.Documents.WriteDocuments(p.Context(), node.id,
			[]store.DocumentWrite{{Kind: "kind", Name: "name", Value: []byte("{}")}}, nil)
		p.wantErr("document of a node of another store", err, store.ErrFenced)
	}},
	{"beats are counted", func(p *probe) {
		node, other := p.join(), p.join()
		first := node.beatOnce().Beats
		other.beatOnce()
		p.equal("beats", []int64{node.beatOnce().Beats, p.node(node.id).Beats}, []int64{first + 1, first + 1})
	}},
	{"a dead node's runs are taken over, and it can write no more", func(p *probe) {
		ids := p.accept(p.event("k"), p.event("k2"), p.event("k3"))
		zombie, held := p.dying(ids...)
		_, err := p.Ledger.Beat(p.Context(), zombie.id, time.Millisecond, "served")
		if err != nil && !errors.Is(err, store.ErrFenced) { // it may fence itself, so short is its lease
			p.Fatal(err)
		}
		zombieWrites := change(held[1], model.Running)
		live := p.join()
		live.takeOver(len(ids))

		err = zombie.tryCommit(zombieWrites)
		p.wantErr("commit of a dead node", err, store.ErrFenced)
		b, err := p.Ledger.Beat(p.Context(), zombie.id, lease, "served")
		p.wantErr("beat of a dead node", err, store.ErrFenced)
		p.equal("beats of a dead node", b.Beats, p.node(zombie.id).Beats)
		_, err = p.Ledger.Claim(p.Context(), zombie.id, 10, "")
		p.wantErr("claim of a dead node", err, store.ErrFenced)

		runs := live.wantClaims(ids...)
		p.equal("version", runs[0].Version, int64(0))
		live.finish(runs...)
		err = zombie.tryCommit(zombieWrites)
		p.wantErr("commit of a dead node", err, store.ErrFenced)
	}},
	{"a takeover keeps the checkpoint and the place in the key", func(p *probe) {
		ids := p.accept(p.event("k"), p.event("k"))
		zombie, held := p.dying(ids[0])
		if err := zombie.tryCommit(change(held[0], model.Running)); err != nil {
			p.Fatalf("commit within the lease, or before it is taken: %v", err)
		}
		live := p.join()
		live.takeOver(1)
		back := live.claimOne(ids[0])
		p.equal("version", back.Version, int64(1))
		p.equal("checkpoint", string(back.Checkpoint), `{"version":0}`)
		live.wantClaims()
	}},
	{"a node whose lease has ended lives until it is taken over", func(p *probe) {
		id := p.accept(p.event("k"))[0]
		node, held := p.dying(id)
		p.eventually("the end of the lease", func() bool { return !p.node(node.id).Alive })
		node.beat()
		p.equal("alive", p.node(node.id).Alive, true)
		node.finish(held...)
	}},
	{"a node that leaves gives its runs back at once", func(p *probe) {
		node, other := p.join(), p.join()
		ids := p.accept(p.event("k"), p.event("k"), p.event("k2"))
		held := node.wantClaims(ids[0], ids[2])
		node.leave(nil)
		err := node.tryCommit(change(held[0], model.Succeeded))
		p.wantErr("commit after leaving", err, store.ErrFenced)
		other.wantClaims(ids[0], ids[2])
		node.leave(nil)
		p.wantStatus(ids[0], model.Running)
	}},
	{"a node that goes on gives back what it does not know", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k2"), p.event("k3"))
		held := node.wantClaims(ids...)
		other := p.join()
		p.equal("owned", node.beat().Owned, 3)
		p.equal("owned by another", other.beat().Owned, 0)
		p.equal("owned by all", other.beat().Running, 3)
		node.leave(ids[1:2])
		p.equal("owned", node.beat().Owned, 1)
		node.finish(held[1])
		p.wantErr("commit of a run given back", node.commitErrs(change(held[0], model.Succeeded))[0], store.ErrStale)
		node.wantClaims(ids[0], ids[2])
		node.leave([]string{})
		p.equal("owned", node.beat().Owned, 0)
		node.wantClaims(ids[0], ids[2])
	}},
	{"the next owner ends a cancelled run whose owner has died or left", func(p *probe) {
		first := p.accept(p.event("k"), p.event("k"))
		p.dying(first[0])
		ids := []string{first[0], p.accept(p.event("k2"))[0], first[1]}
		node := p.join()
		node.claimOne(ids[1])
		for _, id := range ids[:2] {
			p.must(p.Runs.Cancel(p.Context(), id, store.Actor{Name: "ann", Reason: "enough"}, store.Tell{}))
			p.wantStatus(id, model.Running)
		}
		node.leave(nil)
		next := p.join()
		next.takeOver(2)
		for _, c := range next.wantClaims(ids[:2]...) {
			p.equal("cancelled", c.Cancelled, true)
			p.wantErr("going on", next.commitErrs(change(c, model.Running))[0], store.ErrCancelled)
			next.commit(change(c, model.Cancelled))
			p.equal("reason", p.wantStatus(c.ID, model.Cancelled).Reason, "enough")
		}
		p.equal("cancelled", next.claimOne(ids[2]).Cancelled, false)
	}},
	{"a beat tells the time and what is next", func(p *probe) {
		node := p.join()
		b := node.beat()
		if b.Now.IsZero() || b.Ready != 0 || b.Next != 0 || len(b.Cancelled) != 0 {
			p.Fatalf("beat of an idle store: %+v", b)
		}
		p.accept(p.event("k", at(b.Now.Add(time.Hour))), p.event("k"))
		b = node.beat()
		if b.Next > time.Hour || b.Next < time.Hour-patience.For(time.Minute) || b.Ready < 1 {
			p.Fatalf("want one ready and one in an hour, have %+v", b)
		}
		c := change(node.claim(1)[0], model.Parked)
		c.Due = b.Now.Add(time.Minute)
		node.commit(c)
		b = node.beat()
		if b.Next > time.Minute || b.Next < time.Minute-patience.For(time.Minute) || b.Ready != 0 {
			p.Fatalf("want the next in a minute, have %+v", b)
		}
	}},
	{"nodes are listed", func(p *probe) {
		a, b := p.join(), p.join()
		dead, _ := p.dying(p.accept(p.event("k"))[0])
		b.leave(nil)
		info := p.node(dead.id)
		p.equal("runs of the dying node", info.Runs, 1)
		a.takeOver(1)
		a.claim(1)
		nodes, err := p.Ledger.Nodes(p.Context())
		p.must(err)
		if len(nodes) != 2 {
			p.Fatalf("want the live node and the dead one, have %+v", nodes)
		}
		p.equal("live", []any{nodes[0].Node, nodes[0].Name, nodes[0].Alive, nodes[0].Runs}, []any{a.id, p.Name(), true, 1})
		p.equal("dead", []any{nodes[1].Node, nodes[1].Alive, nodes[1].Runs}, []any{dead.id, false, 0})
		if nodes[0].Seen.Before(nodes[0].Started) || nodes[0].Started.IsZero() {
			p.Fatalf("started %s, seen %s", nodes[0].Started, nodes[0].Seen)
		}
	}},
	{"a hint comes when a run becomes ready", func(p *probe) {
		w := p.Waker
		if w == nil {
			p.Skip("the store gives no hints")
		}
		p.accept(p.event("k"))
		select {
		case <-w.Wake():
		case <-patience.After(p, time.Minute):
			p.Fatal("no hint")
		}
	}},
}

// dying joins a node whose lease ends at once, and claims runs for it, which must have these ids.
func (p *probe) dying(ids ...string) (*member, []store.Claimed) {
	p.Helper()
	id, err := p.Ledger.Join(p.Context(), "dying", time.Millisecond)
	p.must(err)
	n := &member{p, id}
	return n, n.wantClaims(ids...)
}

// takeOver beats until the runs of dead nodes are ready again.
func (n *member) takeOver(ready int) {
	n.Helper()
	n.eventually("the takeover", func() bool { return n.beat().Ready >= ready })
}

func (p *probe) node(number int64) store.NodeInfo {
	p.Helper()
	nodes, err := p.Ledger.Nodes(p.Context())
	p.must(err)
	for _, n := range nodes {
		if n.Node == number {
			return n
		}
	}
	p.Fatalf("node %d is not listed", number)
	return store.NodeInfo{}
}
