package enginetest

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
				p.claimOne(node, want)
			} else if i == 2 {
				p.wantClaims(node, ids[3], past.ID, tolerant.ID, low.ID)
			}
		}
	}},
	{"a run stands where its turn is, and tells it", func(p *probe) {
		node := p.join()
		later, sooner := p.event("a"), p.event("b")
		later.Turn, sooner.Turn = time.Hour, -time.Hour
		ids := p.accept(later, p.event("c"), sooner)
		for i, want := range []string{ids[2], ids[1], ids[0]} {
			c := p.claimOne(node, want)
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
			c := p.claimOne(node, id)
			p.wantClaims(other)
			p.commit(node, change(c, model.Running))
			p.wantClaims(other)
			for j := i + 1; j < len(ids); j++ {
				if r := p.wantStatus(ids[j], model.Waiting); !r.Blocked {
					p.Errorf("run %s waits for run %s, but is not blocked", ids[j], id)
				}
			}
			c.Version++
			p.finish(node, c)
		}
		p.wantClaims(node)
	}},
	{"keys, flows and unordered events do not wait for each other", func(p *probe) {
		other := p.event("k")
		other.Flow = "rides"
		ids := p.accept(p.event("k"), other, p.event("k2"), p.event("k", unordered), p.event("k", unordered))
		p.wantClaims(p.join(), ids...)
	}},
	{"a parked run keeps its place", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k"))
		c := change(p.claimOne(node, ids[0]), model.Parked)
		c.Due = p.beat(node).Now.Add(soon)
		p.commit(node, c)
		r := p.wantStatus(ids[0], model.Parked)
		p.equal("parked until", r.Due, c.Due.UTC().Truncate(time.Microsecond))
		p.equal("owner", r.Node, int64(0))
		p.wantClaims(node)
		p.waitReady(node)
		back := p.claimOne(node, ids[0])
		p.equal("version", back.Version, int64(1))
		p.equal("checkpoint", string(back.Checkpoint), string(c.Checkpoint))
		p.equal("bundle", back.Bundle, "bundle")
		p.wantClaims(node)
	}},
	{"a run parked until now is ready", func(p *probe) {
		node := p.join()
		id := p.accept(p.event("k"))[0]
		c := change(p.claimOne(node, id), model.Parked)
		c.Due = p.beat(node).Now.Add(-time.Second)
		p.commit(node, c)
		p.waitReady(node)
		p.claimOne(node, id)
	}},
	{"a scheduled run joins its key when it is due", func(p *probe) {
		node := p.join()
		later := p.event("k", at(p.beat(node).Now.Add(soon)))
		ids := p.accept(later, p.event("k"))
		r := p.wantStatus(later.ID, model.Waiting)
		p.equal("due", r.Due, later.Event.At)
		p.equal("blocked", r.Blocked, false)
		now := p.claimOne(node, ids[1])
		p.eventually("the time of the scheduled run", func() bool {
			p.beat(node)
			return p.run(later.ID).Blocked
		})
		p.wantClaims(node)
		p.finish(node, now)
		p.claimOne(node, later.ID)
	}},
	{"a run that was accepted first goes first once it is due", func(p *probe) {
		node := p.join()
		later := p.event("k", at(p.beat(node).Now.Add(soon)))
		ids := p.accept(later, p.event("k"), p.event("k"))
		p.eventually("the time of the scheduled run", func() bool {
			p.beat(node)
			return p.run(later.ID).Due.IsZero()
		})
		for _, id := range ids {
			p.finish(node, p.claimOne(node, id))
		}
	}},
	{"a run that has begun is not overtaken by one that is retried", func(p *probe) {
		node := p.join()
		first, second := p.event("k"), p.event("k")
		first.Block = false
		p.accept(first, second)
		p.commit(node, change(p.claimOne(node, first.ID), model.Failed))
		p.commit(node, change(p.claimOne(node, second.ID), model.Waiting))
		p.must(p.Runs.Retry(p.Context(), first.ID, steerer))
		p.finish(node, p.claimOne(node, second.ID))
		p.finish(node, p.claimOne(node, first.ID))
	}},
	{"a run that has begun is not overtaken", func(p *probe) {
		node := p.join()
		later := p.event("k", at(p.beat(node).Now.Add(soon)))
		ids := p.accept(later, p.event("k"))
		p.commit(node, change(p.claimOne(node, ids[1]), model.Waiting))
		p.eventually("the time of the scheduled run", func() bool {
			p.beat(node)
			return p.run(later.ID).Due.IsZero()
		})
		c := p.claimOne(node, ids[1])
		p.equal("version", c.Version, int64(1))
		p.finish(node, c)
		p.claimOne(node, ids[0])
	}},
	{"a retried run that blocked its key is not overtaken", func(p *probe) {
		node := p.join()
		later := p.event("k", at(p.beat(node).Now.Add(soon)))
		ids := p.accept(later, p.event("k"))
		p.commit(node, change(p.claimOne(node, ids[1]), model.Failed))
		p.eventually("the time of the scheduled run", func() bool {
			p.beat(node)
			return p.run(later.ID).Due.IsZero()
		})
		p.wantClaims(node)
		p.must(p.Runs.Retry(p.Context(), ids[1], steerer))
		p.finish(node, p.claimOne(node, ids[1]))
		p.claimOne(node, ids[0])
	}},
	{"a run begins with the bundle of its first owner", func(p *probe) {
		node := p.join()
		claim := func(bundle string) store.Claimed {
			p.Helper()
			runs, err := p.Ledger.Claim(p.Context(), node, 1, bundle)
			if err != nil || len(runs) != 1 {
				p.Fatalf("claim: have %d runs, %v", len(runs), err)
			}
			return runs[0]
		}
		in := p.event("k", owned)
		in.Bundle = "first"
		p.equal("bundle of an owned run", p.acceptFor(node, in)[0].Claimed.Bundle, "first")
		p.equal("bundle of its record", p.run(in.ID).Bundle, "first")
		later := p.event("k", at(p.beat(node).Now.Add(soon)))
		p.accept(later)
		p.eventually("the time of the scheduled run", func() bool { p.beat(node); return p.run(later.ID).Due.IsZero() })
		p.must(p.Ledger.Leave(p.Context(), node, []string{}))
		c := claim("second")
		if c.ID != in.ID || c.Bundle != "first" || c.Version != 0 {
			p.Fatalf("want the run that has begun, with the bundle first, have %+v", c)
		}
		d := change(c, model.Succeeded)
		d.Bundle = "first"
		p.commit(node, d)
		c = claim("second")
		p.equal("bundle", c.Bundle, "second")
		aside := change(c, model.Waiting)
		aside.Checkpoint, aside.Bundle = nil, ""
		p.commit(node, aside)
		p.equal("bundle of a run that has not begun", claim("third").Bundle, "third")
	}},
	{"a failed run blocks its key until an operator decides", func(p *probe) {
		node := p.join()
		for _, decide := range []string{"retry", "cancel"} {
			key := "key-" + decide
			ids := p.accept(p.event(key), p.event(key))
			c := change(p.claimOne(node, ids[0]), model.Failed)
			c.FailedPath, c.Error = "made/stage/handler", "it broke"
			p.commit(node, c)
			p.wantClaims(node)
			r := p.wantStatus(ids[0], model.Failed)
			p.equal("failed path", r.FailedPath+": "+r.Error, "made/stage/handler: it broke")
			p.equal("checkpoint", string(r.Checkpoint), string(c.Checkpoint))
			if r.Ended.IsZero() || !r.Blocks || p.entity(key).Blocked != ids[0] {
				p.Fatalf("ended %s, blocks %v, entity blocked by %q", r.Ended, r.Blocks, p.entity(key).Blocked)
			}
			if decide == "retry" {
				p.must(p.Runs.Retry(p.Context(), ids[0], steerer))
				again := p.claimOne(node, ids[0])
				p.equal("generation", again.Generation, 1)
				p.equal("checkpoint", string(again.Checkpoint), string(c.Checkpoint))
				p.finish(node, again)
			} else {
				p.must(p.Runs.Cancel(p.Context(), ids[0], store.Actor{Name: "ann", Reason: "hopeless"}))
				p.equal("reason", p.wantStatus(ids[0], model.Cancelled).Reason, "hopeless")
			}
			p.equal("blocked", p.entity(key).Blocked, "")
			p.equal("blocks", p.run(ids[0]).Blocks, false)
			p.finish(node, p.claimOne(node, ids[1]))
		}
	}},
	{"a failed run that does not block lets the key go on, and returns to it", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k", skipping), p.event("k", skipping), p.event("k", skipping))
		p.commit(node, change(p.claimOne(node, ids[0]), model.Failed))
		p.equal("blocked", p.entity("k").Blocked, "")
		p.equal("blocks", p.run(ids[0]).Blocks, false)
		second := p.claimOne(node, ids[1])
		p.must(p.Runs.Retry(p.Context(), ids[0], steerer))
		p.wantClaims(node)
		if r := p.wantStatus(ids[0], model.Waiting); !r.Blocked || !r.Ended.IsZero() || r.Error != "" {
			p.Fatalf("retried run: %+v", r)
		}
		p.finish(node, second)
		p.finish(node, p.claimOne(node, ids[0]))
		p.claimOne(node, ids[2])
	}},
	{"a deferred run waits for another state", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k"), p.event("k"), p.event("k"))
		aside := func(c store.Claimed) {
			d := change(c, model.Waiting)
			d.Defer, d.Checkpoint, d.Bundle = true, nil, ""
			p.commit(node, d)
		}
		aside(p.claimOne(node, ids[0]))
		if r := p.wantStatus(ids[0], model.Waiting); r.Blocked || r.Node != 0 || !r.Started.IsZero() {
			p.Fatalf("deferred run: %+v", r)
		}
		aside(p.claimOne(node, ids[1]))
		second := change(p.claimOne(node, ids[2]), model.Succeeded)
		second.State, second.Shared = "open", []byte(`{"n":1}`)
		p.commit(node, second)
		// Both are back, the first accepted one before all others.
		first := p.claimOne(node, ids[0])
		p.equal("state", first.Entity.State, "open")
		p.equal("version", first.Version, int64(1))
		aside(first)
		same := change(p.claimOne(node, ids[1]), model.Succeeded)
		same.State, same.Shared = "open", []byte(`{"n":2}`)
		p.commit(node, same)
		// The state has not changed, so the first stays deferred.
		p.finish(node, p.claimOne(node, ids[3]))
		p.wantClaims(node)
		p.equal("waiting", p.entity("k").Waiting, 1)
		p.must(p.Runs.Cancel(p.Context(), ids[0], store.Actor{Name: "ann", Reason: "no"}))
		p.equal("waiting", p.entity("k").Waiting, 0)
	}},
	{"a run that is given back is claimed again at once", func(p *probe) {
		node, other := p.join(), p.join()
		ids := p.accept(p.event("k"), p.event("k"))
		c := p.claimOne(node, ids[0])
		p.commit(node, change(c, model.Waiting))
		p.wantStatus(ids[0], model.Waiting)
		if r := p.run(ids[0]); r.Started.IsZero() {
			p.Fatal("the run has a checkpoint, and no start")
		}
		back := p.claimOne(other, ids[0])
		p.equal("version", back.Version, c.Version+1)
		p.wantErr("commit of the former owner", p.commitErrs(node, change(back, model.Running))[0], store.ErrStale)
		p.finish(other, back)
	}},
}

func (p *probe) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// waitReady beats, as often as the store asks, until runs are ready.
func (p *probe) waitReady(node int64) {
	p.Helper()
	p.eventually("a ready run", func() bool { return p.beat(node).Ready > 0 })
}
