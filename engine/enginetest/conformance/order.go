package conformance

import (
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// soon is far enough ahead for a few calls, also on a busy machine.
const soon = 3 * time.Second

var orderCases = []storeCase{
	{"claims go by priority, then deadline, then acceptance", func(p *probe) {
		node := p.join()
		tolerant := p.event("a")
		tolerant.Event.DelayTolerance = time.Hour
		past := p.event("d", at(time.Now().Add(-time.Hour))) // due when accepted
		urgent, low := p.event("e", priority(5)), p.event("f", priority(-1))
		ids := p.accept(tolerant, p.event("b"), low, p.event("c", unordered), past, urgent)
		for i, want := range []string{urgent.ID, ids[1], ids[3], past.ID, tolerant.ID, low.ID} {
			if i < 2 {
				node.claimOne(want)
			} else if i == 2 {
				node.wantClaims(ids[3], past.ID, tolerant.ID, low.ID)
			}
		}
	}},
	{"a run stands where its turn is, and tells it", func(p *probe) {
		node := p.join()
		later, sooner := p.event("a"), p.event("b")
		later.Turn, sooner.Turn = time.Hour, -time.Hour
		ids := p.accept(later, p.event("c"), sooner)
		for i, want := range []string{ids[2], ids[1], ids[0]} {
			c := node.claimOne(want)
			turn := []time.Duration{-time.Hour, 0, time.Hour}[i]
			if !c.Turn.Equal(c.Accepted.Add(turn)) {
				p.Errorf("run %d: accepted at %s with a turn of %s, told that it is %s", i, c.Accepted, turn, c.Turn)
			}
		}
	}},
	{"a key gives one run at a time, in order of acceptance", func(p *probe) {
		node, other := p.join(), p.join()
		ids := p.accept(p.event("k"), p.event("k", priority(9)), p.event("k"))
		for i, id := range ids {
			c := node.claimOne(id)
			other.wantClaims()
			node.commit(change(c, model.Running))
			other.wantClaims()
			for j := i + 1; j < len(ids); j++ {
				if r := p.wantStatus(ids[j], model.Waiting); !r.Blocked {
					p.Errorf("run %s waits for run %s, but is not blocked", ids[j], id)
				}
			}
			c.Version++
			node.finish(c)
		}
		node.wantClaims()
	}},
	{"keys, flows and unordered events do not wait for each other", func(p *probe) {
		other := p.event("k")
		other.Flow = "rides"
		ids := p.accept(p.event("k"), other, p.event("k2"), p.event("k", unordered), p.event("k", unordered))
		p.join().wantClaims(ids...)
	}},
	{"a parked run keeps its place", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k"))
		c := change(node.claimOne(ids[0]), model.Parked)
		c.Due = node.beat().Now.Add(soon)
		node.commit(c)
		r := p.wantStatus(ids[0], model.Parked)
		p.equal("parked until", r.Due, c.Due.UTC().Truncate(time.Microsecond))
		p.equal("owner", r.Node, int64(0))
		node.wantClaims()
		node.waitReady()
		back := node.claimOne(ids[0])
		p.equal("version", back.Version, int64(1))
		p.equal("checkpoint", string(back.Checkpoint), string(c.Checkpoint))
		p.equal("bundle", back.Bundle, "bundle")
		node.wantClaims()
	}},
	{"a run parked until now is ready", func(p *probe) {
		node := p.join()
		id := p.accept(p.event("k"))[0]
		c := change(node.claimOne(id), model.Parked)
		c.Due = node.beat().Now.Add(-time.Second)
		node.commit(c)
		node.waitReady()
		node.claimOne(id)
	}},
	{"a scheduled run joins its key when it is due", func(p *probe) {
		node := p.join()
		later := p.event("k", at(node.beat().Now.Add(soon)))
		ids := p.accept(later, p.event("k"))
		r := p.wantStatus(later.ID, model.Waiting)
		p.equal("due", r.Due, later.Event.At)
		p.equal("blocked", r.Blocked, false)
		now := node.claimOne(ids[1])
		p.eventually("the time of the scheduled run", func() bool {
			node.beat()
			return p.run(later.ID).Blocked
		})
		node.wantClaims()
		node.finish(now)
		node.claimOne(later.ID)
	}},
	{"a run that was accepted first goes first once it is due", func(p *probe) {
		node := p.join()
		later := p.event("k", at(node.beat().Now.Add(soon)))
		ids := p.accept(later, p.event("k"), p.event("k"))
		p.eventually("the time of the scheduled run", func() bool {
			node.beat()
			return p.run(later.ID).Due.IsZero()
		})
		for _, id := range ids {
			node.finish(node.claimOne(id))
		}
	}},
	{"a run that has begun is not overtaken by one that is retried", func(p *probe) {
		node := p.join()
		first, second := p.event("k"), p.event("k")
		first.Block = false
		p.accept(first, second)
		node.commit(change(node.claimOne(first.ID), model.Failed))
		node.commit(change(node.claimOne(second.ID), model.Waiting))
		p.must(p.Runs.Retry(p.Context(), first.ID, steerer))
		node.finish(node.claimOne(second.ID))
		node.finish(node.claimOne(first.ID))
	}},
	{"a run that has begun is not overtaken", func(p *probe) {
		node := p.join()
		later := p.event("k", at(node.beat().Now.Add(soon)))
		ids := p.accept(later, p.event("k"))
		node.commit(change(node.claimOne(ids[1]), model.Waiting))
		p.eventually("the time of the scheduled run", func() bool {
			node.beat()
			return p.run(later.ID).Due.IsZero()
		})
		c := node.claimOne(ids[1])
		p.equal("version", c.Version, int64(1))
		node.finish(c)
		node.claimOne(ids[0])
	}},
	{"a retried run that blocked its key is not overtaken", func(p *probe) {
		node := p.join()
		later := p.event("k", at(node.beat().Now.Add(soon)))
		ids := p.accept(later, p.event("k"))
		node.commit(change(node.claimOne(ids[1]), model.Failed))
		p.eventually("the time of the scheduled run", func() bool {
			node.beat()
			return p.run(later.ID).Due.IsZero()
		})
		node.wantClaims()
		p.must(p.Runs.Retry(p.Context(), ids[1], steerer))
		node.finish(node.claimOne(ids[1]))
		node.claimOne(ids[0])
	}},
	{"a run begins with the bundle of its first owner", func(p *probe) {
		node := p.join()
		claim := func(bundle string) store.Claimed {
			p.Helper()
			runs, err := p.Ledger.Claim(p.Context(), node.id, 1, bundle)
			if err != nil || len(runs) != 1 {
				p.Fatalf("claim: have %d runs, %v", len(runs), err)
			}
			return runs[0]
		}
		in := p.event("k", owned)
		in.Bundle = "first"
		p.equal("bundle of an owned run", p.acceptFor(node.id, in)[0].Claimed.Bundle, "first")
		p.equal("bundle of its record", p.run(in.ID).Bundle, "first")
		later := p.event("k", at(node.beat().Now.Add(soon)))
		p.accept(later)
		p.eventually("the time of the scheduled run", func() bool { node.beat(); return p.run(later.ID).Due.IsZero() })
		node.leave([]string{})
		c := claim("second")
		if c.ID != in.ID || c.Bundle != "first" || c.Version != 0 {
			p.Fatalf("want the run that has begun, with the bundle first, have %+v", c)
		}
		d := change(c, model.Succeeded)
		d.Bundle = "first"
		node.commit(d)
		c = claim("second")
		p.equal("bundle", c.Bundle, "second")
		aside := change(c, model.Waiting)
		aside.Checkpoint, aside.Bundle = nil, ""
		node.commit(aside)
		p.equal("bundle of a run that has not begun", claim("third").Bundle, "third")
	}},
	{"a failed run blocks its key until an operator decides", func(p *probe) {
		node := p.join()
		for _, decide := range []string{"retry", "cancel"} {
			key := "key-" + decide
			ids := p.accept(p.event(key), p.event(key))
			c := change(node.claimOne(ids[0]), model.Failed)
			c.FailedPath, c.Error = "made/stage/handler", "it broke"
			node.commit(c)
			node.wantClaims()
			r := p.wantStatus(ids[0], model.Failed)
			p.equal("failed path", r.FailedPath+": "+r.Error, "made/stage/handler: it broke")
			p.equal("checkpoint", string(r.Checkpoint), string(c.Checkpoint))
			if r.Ended.IsZero() || !r.Blocks || p.entity(key).Blocked != ids[0] {
				p.Fatalf("ended %s, blocks %v, entity blocked by %q", r.Ended, r.Blocks, p.entity(key).Blocked)
			}
			if decide == "retry" {
				p.must(p.Runs.Retry(p.Context(), ids[0], steerer))
				again := node.claimOne(ids[0])
				p.equal("generation", again.Generation, 1)
				p.equal("checkpoint", string(again.Checkpoint), string(c.Checkpoint))
				node.finish(again)
			} else {
				p.must(p.Runs.Cancel(p.Context(), ids[0], store.Actor{Name: "ann", Reason: "hopeless"}, store.Tell{}))
				p.equal("reason", p.wantStatus(ids[0], model.Cancelled).Reason, "hopeless")
			}
			p.equal("blocked", p.entity(key).Blocked, "")
			p.equal("blocks", p.run(ids[0]).Blocks, false)
			node.finish(node.claimOne(ids[1]))
		}
	}},
	{"a failed run that does not block lets the key go on, and returns to it", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k", skipping), p.event("k", skipping), p.event("k", skipping))
		node.commit(change(node.claimOne(ids[0]), model.Failed))
		p.equal("blocked", p.entity("k").Blocked, "")
		p.equal("blocks", p.run(ids[0]).Blocks, false)
		second := node.claimOne(ids[1])
		p.must(p.Runs.Retry(p.Context(), ids[0], steerer))
		node.wantClaims()
		if r := p.wantStatus(ids[0], model.Waiting); !r.Blocked || !r.Ended.IsZero() || r.Error != "" {
			p.Fatalf("retried run: %+v", r)
		}
		node.finish(second)
		node.finish(node.claimOne(ids[0]))
		node.claimOne(ids[2])
	}},
	{"a deferred run waits for another state", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k"), p.event("k"), p.event("k"))
		aside := func(c store.Claimed) {
			d := change(c, model.Waiting)
			d.Defer, d.Checkpoint, d.Bundle = true, nil, ""
			node.commit(d)
		}
		aside(node.claimOne(ids[0]))
		if r := p.wantStatus(ids[0], model.Waiting); r.Blocked || r.Node != 0 || !r.Started.IsZero() {
			p.Fatalf("deferred run: %+v", r)
		}
		aside(node.claimOne(ids[1]))
		second := change(node.claimOne(ids[2]), model.Succeeded)
		second.State, second.Shared = "open", []byte(`{"n":1}`)
		node.commit(second)
		// Both are back, the first accepted one before all others.
		first := node.claimOne(ids[0])
		p.equal("state", first.Entity.State, "open")
		p.equal("version", first.Version, int64(1))
		aside(first)
		same := change(node.claimOne(ids[1]), model.Succeeded)
		same.State, same.Shared = "open", []byte(`{"n":2}`)
		node.commit(same)
		// The state has not changed, so the first stays deferred.
		node.finish(node.claimOne(ids[3]))
		node.wantClaims()
		p.equal("waiting", p.entity("k").Waiting, 1)
		p.must(p.Runs.Cancel(p.Context(), ids[0], store.Actor{Name: "ann", Reason: "no"}, store.Tell{}))
		p.equal("waiting", p.entity("k").Waiting, 0)
	}},
	{"a run that is given back is claimed again at once", func(p *probe) {
		node, other := p.join(), p.join()
		ids := p.accept(p.event("k"), p.event("k"))
		c := node.claimOne(ids[0])
		node.commit(change(c, model.Waiting))
		p.wantStatus(ids[0], model.Waiting)
		if r := p.run(ids[0]); r.Started.IsZero() {
			p.Fatal("the run has a checkpoint, and no start")
		}
		back := other.claimOne(ids[0])
		p.equal("version", back.Version, c.Version+1)
		p.wantErr("commit of the former owner", node.commitErrs(change(back, model.Running))[0], store.ErrStale)
		other.finish(back)
	}},
}
