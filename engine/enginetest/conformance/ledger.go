package conformance

import (
	"fmt"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

var ledgerCases = []storeCase{
	{"a claim gives the whole run", func(p *probe) {
		node := p.join()
		in := p.event("k")
		in.Event.Payload = map[string]any{"text": long(20_000)}
		p.accept(in)
		c := node.claimOne(in.ID)
		accepted := p.run(in.ID).Accepted
		p.equal("claimed", c, store.Claimed{
			ID: in.ID, Event: in.Event, Flow: "orders", Key: "k", Ordered: true, Block: true,
			Accepted: accepted, Turn: accepted, Pipeline: "made",
		})
		r := p.wantStatus(in.ID, model.Running)
		if r.Started.Before(r.Accepted) || r.Node != node.id {
			p.Fatalf("accepted %s, started %s by node %d, want node %d", r.Accepted, r.Started, r.Node, node.id)
		}
		node.wantClaims()
	}},
	{"a claim keeps its limit", func(p *probe) {
		node := p.join()
		for range 5 {
			p.accept(p.event("k", unordered))
		}
		for _, want := range []int{2, 2, 1, 0} {
			if have := len(node.claim(2)); have != want {
				p.Fatalf("claim of 2: want %d, have %d", want, have)
			}
		}
	}},
	{"a claim is bounded in bytes, and gives one run at least", func(p *probe) {
		node := p.join()
		var ids []string
		large := long(store.ClaimBytes)
		for range 3 {
			in := p.event("k", unordered)
			in.Event.Payload = large
			ids = append(ids, p.accept(in)...)
		}
		small := p.accept(p.event("k", unordered), p.event("k", unordered))
		for _, id := range ids {
			if have := node.wantClaims(id); have[0].Event.Payload != large {
				p.Fatalf("want the payload of run %s, have %.100v", id, have[0].Event.Payload)
			}
		}
		node.wantClaims(small...)
	}},
	{"each checkpoint replaces the one before and counts", func(p *probe) {
		node := p.join()
		c := node.claimOne(p.accept(p.event("k"))[0])
		for i, size := range []int{10, 900, 20_000, 3, 0} {
			ch := change(c, model.Running)
			ch.Checkpoint, ch.Bundle, ch.Pipeline = []byte(long(size)), fmt.Sprintf("bundle-%d", i), fmt.Sprintf("p-%d", i)
			node.commit(ch)
			c.Version++
			r := p.wantStatus(c.ID, model.Running)
			p.equal("checkpoint", string(r.Checkpoint), long(size))
			p.equal("rest", []any{r.Bundle, r.Pipeline, r.Version, r.Node}, []any{ch.Bundle, ch.Pipeline, c.Version, node.id})
		}
	}},
	{"a change of a run that has moved on is stale, and only that change", func(p *probe) {
		node, other := p.join(), p.join()
		ids := p.accept(p.event("k"), p.event("k2"), p.event("k3"))
		runs := node.wantClaims(ids...)
		node.commit(change(runs[0], model.Running))
		again, ghost := change(runs[0], model.Succeeded), change(runs[1], model.Running)
		again.Emit = []model.Intake{p.event("emitted")}
		ghost.Run = "nobody"
		errs := node.commitErrs(again, ghost, change(runs[1], model.Running))
		p.wantErr("old version", errs[0], store.ErrStale)
		p.wantErr("unknown run", errs[1], store.ErrStale)
		p.must(errs[2])
		p.wantErr("not the owner", other.commitErrs(change(runs[2], model.Succeeded))[0], store.ErrStale)
		p.wantStatus(ids[0], model.Running)
		_, err := p.Runs.Entity(p.Context(), "orders", "emitted")
		p.wantErr("event of a stale change", err, store.ErrNotFound)
		node.commit(change(runs[2], model.Succeeded))
		p.wantErr("after the end", node.commitErrs(change(runs[2], model.Succeeded))[0], store.ErrStale)
	}},
	{"every end is kept with its story", func(p *probe) {
		node := p.join()
		for _, s := range []model.Status{model.Succeeded, model.Cancelled, model.Ignored, model.Failed} {
			in := p.event(string(s))
			p.accept(in)
			c := change(node.claimOne(in.ID), s)
			c.FailedPath, c.Error = "a/b/c", "bad"
			if s != model.Failed {
				c.Reason = "because"
			}
			node.commit(c)
			r := p.run(in.ID)
			if r.Ended.Before(r.Started) || r.Started.Before(r.Accepted) {
				p.Errorf("%s: accepted %s, started %s, ended %s", s, r.Accepted, r.Started, r.Ended)
			}
			p.equal(string(s), r, store.RunRecord{
				ID: in.ID, Event: in.Event, Flow: "orders", Key: in.Key, Ordered: true, Status: s, Pipeline: "made",
				Bundle: "bundle", Checkpoint: c.Checkpoint, Version: 1, Accepted: r.Accepted, Started: r.Started,
				Ended: r.Ended, FailedPath: "a/b/c", Error: "bad", Reason: c.Reason, Blocks: s == model.Failed,
			})
		}
	}},
	{"the entity changes with success, by name", func(p *probe) {
		node := p.join()
		step := func(s model.Status, state, shared string) {
			p.Helper()
			p.accept(p.event("k", skipping))
			c := change(node.claim(1)[0], s)
			c.State, c.Shared = state, []byte(shared)
			node.commit(c)
		}
		want := func(state string, shared map[string]any) {
			p.Helper()
			e := p.entity("k")
			p.equal("state", e.State, state)
			p.wantJSON("shared", e.Shared, shared)
		}
		step(model.Succeeded, "open", `{"a":{"x":1},"b":[1],"big":9223372036854775807,"f":100.0,"e":1e300,"tiny":1e-7}`)
		all := map[string]any{
			"a": map[string]any{"x": 1}, "b": []any{1}, "big": 9223372036854775807, "f": 100.0, "e": 1e300, "tiny": 1e-7,
		}
		want("open", all)
		step(model.Succeeded, "", `{"a":{"y":2},"c":null}`)
		all["a"], all["c"] = map[string]any{"y": 2}, nil
		want("open", all)
		step(model.Succeeded, "closed", "")
		want("closed", all)
		for _, s := range []model.Status{model.Failed, model.Cancelled, model.Ignored} {
			step(s, "lost", `{"a":0}`)
		}
		want("closed", all)
		p.accept(p.event("k"))
		c := node.claim(1)[0]
		p.equal("state of the next run", c.Entity.State, "closed")
		p.wantJSON("shared state of the next run", c.Entity.Shared, all)
	}},
	{"events are emitted with the change", func(p *probe) {
		node := p.join()
		known, c := p.event("k2"), node.claimOne(p.accept(p.event("k"))[0])
		p.accept(known)
		same, other, again := p.event("k"), p.event("k3", owned), known
		again.ID, again.Key = "again", "k9"
		other.From = []string{"open"}
		ch := change(c, model.Running)
		ch.Emit = []model.Intake{same, other, again}
		node.commit(ch)
		p.wantRuns(4)
		node.wantClaims(known.ID, other.ID)
		c.Version++
		end := change(c, model.Succeeded)
		end.Emit = []model.Intake{same, p.event("k"), p.event("k3", unordered)}
		node.commit(end)
		p.wantRuns(6)
		node.wantClaims(same.ID, end.Emit[2].ID)
		_, err := p.Runs.Entity(p.Context(), "orders", "k9")
		p.wantErr("entity of an event that is left out", err, store.ErrNotFound)
	}},
	{"an event emitted to its own key after the end is next", func(p *probe) {
		node := p.join()
		end := change(node.claimOne(p.accept(p.event("k"))[0]), model.Succeeded)
		next := p.event("k")
		end.Emit = []model.Intake{next}
		node.commit(end)
		node.claimOne(next.ID)
	}},
	{"one commit holds many changes of all kinds", func(p *probe) {
		node := p.join()
		var changes []model.Change
		kinds := []model.Status{model.Running, model.Succeeded, model.Parked, model.Failed, model.Waiting}
		for i := range 100 {
			p.accept(p.event(fmt.Sprintf("k%d", i)), p.event(fmt.Sprintf("k%d", i)))
		}
		for i, c := range node.claim(100) {
			ch := change(c, kinds[i%len(kinds)])
			ch.Due = time.Now().Add(time.Hour)
			ch.Emit = []model.Intake{p.event(fmt.Sprintf("emitted-%d", i%7))}
			changes = append(changes, ch)
		}
		node.commit(changes...)
		for _, c := range changes {
			p.wantStatus(c.Run, c.Status)
		}
		// The next of 20 keys, 20 released runs, and the heads of 7 new keys.
		if have := len(node.claim(1000)); have != 47 {
			p.Fatalf("claim: want 47, have %d", have)
		}
	}},
	{"a run may occur once in a commit", func(p *probe) {
		node := p.join()
		c := node.claimOne(p.accept(p.event("k"))[0])
		if _, err := p.Ledger.Commit(p.Context(), node.id, []model.Change{change(c, model.Running), change(c, model.Running)}); err == nil {
			p.Fatal("two changes of one run were taken")
		}
		p.equal("version", p.run(c.ID).Version, int64(0))
	}},
	{"nothing to do is done", func(p *probe) {
		node := p.join()
		p.equal("accepted", p.acceptFor(node.id), []store.Accepted{})
		p.equal("committed", node.commitErrs(), []error{})
		node.wantClaims()
	}},
}
