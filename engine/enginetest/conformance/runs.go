package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

var runCases = []storeCase{
	{"what does not exist is not found", func(p *probe) {
		_, err := p.Runs.Run(p.Context(), "nobody")
		p.wantErr("run", err, store.ErrNotFound)
		_, err = p.Runs.Entity(p.Context(), "orders", "nobody")
		p.wantErr("entity", err, store.ErrNotFound)
		p.wantErr("retry", p.Runs.Retry(p.Context(), "nobody", steerer), store.ErrNotFound)
		p.wantErr("cancel", p.Runs.Cancel(p.Context(), "nobody", store.Actor{Name: "ann", Reason: "x"}, store.Tell{}), store.ErrNotFound)
		p.accept(p.event("alone", unordered))
		_, err = p.Runs.Entity(p.Context(), "orders", "alone")
		p.wantErr("entity of an unordered event", err, store.ErrNotFound)
	}},
	{"news of runs are their ends, and other versions than those that were seen", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("a"), p.event("b"), p.event("c"), p.event("d"))
		first := node.claim(1)
		node.finish(first...)
		news := func(of ...store.Seen) (out []string) {
			all, err := p.Runs.Newer(p.Context(), of)
			p.must(err)
			for _, r := range all {
				whole, err := p.Runs.Run(p.Context(), r.ID)
				p.must(err)
				p.equal("record of "+r.ID, r, whole)
				out = append(out, r.ID)
			}
			slices.Sort(out)
			return out
		}
		var ends, seen []store.Seen
		for _, id := range append(ids, "nobody") {
			r, _ := p.Runs.Run(p.Context(), id)
			ends, seen = append(ends, store.Seen{Run: id, Version: -1}), append(seen, store.Seen{Run: id, Version: r.Version})
		}
		p.equal("none", news(), []string(nil))
		p.equal("the end of one", news(ends...), []string{first[0].ID})
		for i := range ends {
			ends[i].Left = true
		}
		p.equal("the end of one, and others that were only released", news(ends...), []string{first[0].ID})
		p.equal("what has changed", news(seen[1:]...), []string(nil))
		second := node.claim(1)[0]
		node.commit(change(second, model.Running))
		p.equal("a step is no end", news(ends[1:]...), []string(nil))
		p.equal("a step is another version", news(seen[1:]...), []string{second.ID})
		failed := change(second, model.Failed)
		failed.Version++
		node.commit(failed)
		p.equal("a failure is an end", news(ends[1:]...), []string{second.ID})
		var many []store.Seen
		for range 70 {
			many = append(many, ends...)
		}
		p.equal("many", len(slices.Compact(news(many...))), 2)
	}},
	{"a listing goes from the last accepted to the first, page by page", func(p *probe) {
		node := p.join()
		var want []string
		for i := range 23 {
			id := p.accept(p.event(fmt.Sprintf("k%d", i%4)))[0]
			want = append(want, id)
			if i%3 == 0 {
				node.finish(node.claim(2)...)
			}
		}
		slices.Reverse(want)
		for _, size := range []int{1, 5, 23, 1000} {
			p.equal(fmt.Sprintf("pages of %d", size), p.pages(store.RunFilter{Limit: size}), want)
		}
	}},
	{"a listing stays in place while runs come and go", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("a"), p.event("b"), p.event("c"), p.event("d"))
		first, cursor, err := p.Runs.List(p.Context(), store.RunFilter{Limit: 2})
		p.must(err)
		p.accept(p.event("e"))
		node.finish(node.claim(3)...)
		rest, last, err := p.Runs.List(p.Context(), store.RunFilter{Limit: 2, Cursor: cursor})
		p.must(err)
		p.equal("last cursor", last, "")
		p.equal("runs", []string{first[0].ID, first[1].ID, rest[0].ID, rest[1].ID}, []string{ids[3], ids[2], ids[1], ids[0]})
	}},
	{"a page is bounded by bytes, and a brief one has no payloads", func(p *probe) {
		node := p.join()
		var want []string
		for i, size := range []int{10, 40_000, 10, 10, 9_000, 10, 30_000} {
			in := p.event(fmt.Sprintf("k%d", i))
			in.Event.Payload = map[string]any{"text": long(size)}
			want = append(want, p.accept(in)[0])
		}
		node.finish(node.claim(3)...)
		slices.Reverse(want)
		var have []string
		for f := (store.RunFilter{Limit: 4, Brief: true, Bytes: 20_000}); ; {
			runs, next, err := p.Runs.List(p.Context(), f)
			p.must(err)
			if len(runs) == 0 || len(runs) > 4 || len(runs) > 1 &&
				slices.ContainsFunc(runs, func(r store.RunRecord) bool { return r.ID == want[0] || r.ID == want[5] }) {
				p.Errorf("have a page of %d runs after %v, want a large one to be alone", len(runs), have)
			}
			for _, r := range runs {
				have = append(have, r.ID)
				whole, err := p.Runs.Run(p.Context(), r.ID)
				p.must(err)
				if r.Event.Payload != nil || whole.Event.Payload == nil {
					p.Errorf("have the payload %.50v in a brief list, and %.50v by itself", r.Event.Payload, whole.Event.Payload)
				}
				whole.Event.Payload, whole.Place = nil, r.Place
				p.equal("the rest of the run", r, whole)
			}
			f.Cursor = next
			if next == "" {
				break
			}
		}
		p.equal("runs", have, want)
	}},
	{"a cursor that no listing gave is refused", func(p *probe) {
		_, _, err := p.Runs.List(p.Context(), store.RunFilter{Limit: 1, Cursor: "no cursor!"})
		p.wantErr("list", err, store.ErrCursor)
	}},
	{"a listing heeds every filter", func(p *probe) {
		node := p.join()
		byStatus := map[model.Status][]string{}
		var rides []string
		for _, s := range []model.Status{
			model.Succeeded, model.Cancelled, model.Ignored, model.Failed, model.Parked, model.Running,
			model.Waiting,
		} {
			for range 3 {
				in := p.event("k-" + string(s))
				in.Block, in.Flow, in.Pipeline = false, "rides", "ride-"+string(s)
				p.accept(in)
				rides = append(rides, in.ID)
				if s == model.Waiting {
					byStatus[s] = append(byStatus[s], in.ID)
					continue
				}
				if s == model.Running || s == model.Parked {
					in.Key += in.ID
				}
				runs := node.claim(1)
				if len(runs) == 0 { // waits behind the parked or running one
					byStatus[model.Waiting] = append(byStatus[model.Waiting], in.ID)
					continue
				}
				c := change(runs[0], s)
				c.Due = time.Now().Add(time.Hour)
				node.commit(c)
				byStatus[s] = append(byStatus[s], in.ID)
			}
		}
		other := p.accept(p.event("k"))
		slices.Reverse(rides)
		p.equal("flow", p.pages(store.RunFilter{Flow: "rides", Limit: 4}), rides)
		for s, want := range byStatus {
			slices.Reverse(want)
			p.equal(string(s), p.pages(store.RunFilter{Flow: "rides", Status: s, Limit: 2}), want)
		}
		p.equal("key", p.pages(store.RunFilter{Flow: "rides", Key: "k-ignored", Limit: 100}), byStatus[model.Ignored])
		p.equal("key of any flow", p.pages(store.RunFilter{Key: "k-ignored", Limit: 100}), byStatus[model.Ignored])
		p.equal("key of another flow", p.pages(store.RunFilter{Key: "k", Limit: 100}), other)
		p.equal("pipeline", p.pages(store.RunFilter{Pipeline: "ride-failed", Limit: 100}), byStatus[model.Failed])
		p.equal("all at once", p.pages(store.RunFilter{
			Pipeline: "ride-succeeded", Flow: "rides", Key: "k-succeeded", Status: model.Succeeded, Limit: 1,
		}), byStatus[model.Succeeded])
		p.equal("nothing", p.pages(store.RunFilter{Key: "k-succeeded", Status: model.Failed, Limit: 1}), []string{})
	}},
	{"an entity shows its latest runs without checkpoints", func(p *probe) {
		node := p.join()
		var ids []string
		for range 60 {
			ids = append(ids, p.accept(p.event("k"))[0])
			if len(ids) <= 30 {
				node.finish(node.claim(1)...)
			}
		}
		node.claimOne(ids[30])
		e := p.entity("k")
		p.equal("flow, key, waiting", []any{e.Flow, e.Key, e.Waiting}, []any{"orders", "k", 30})
		var have []string
		for _, r := range e.Runs {
			have = append(have, r.ID)
			if r.Checkpoint != nil {
				p.Fatalf("run %s of the entity has its checkpoint", r.ID)
			}
		}
		slices.Reverse(have)
		p.equal("runs", have, ids[10:])
	}},
	{"a run parked without a due time waits for an operator", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k"), p.event("k2"), p.event("u", unordered))
		for i, c := range node.wantClaims(ids[0], ids[2], ids[3]) {
			node.commit(change(c, model.Parked))
			r := p.wantStatus(c.ID, model.Parked)
			p.equal("due, owner, blocks", []any{r.Due, r.Node, r.Blocks}, []any{time.Time{}, int64(0), r.Ordered})
			p.equal("parked", len(p.pages(store.RunFilter{Status: model.Parked, Limit: 10})), i+1)
		}
		b := node.beat()
		p.equal("ready, next", []any{b.Ready, b.Next}, []any{0, time.Duration(0)})
		node.wantClaims()
		e := p.entity("k")
		p.equal("blocked, waiting", []any{e.Blocked, e.Waiting}, []any{ids[0], 2})

		p.must(p.Runs.Retry(p.Context(), ids[0], steerer))
		p.wantErr("retry of a retried run", p.Runs.Retry(p.Context(), ids[0], steerer), store.ErrConflict)
		p.equal("blocked after the retry", p.entity("k").Blocked, "")
		c := node.claimOne(ids[0])
		p.equal("generation, version, checkpoint", []any{c.Generation, c.Version, string(c.Checkpoint)},
			[]any{1, int64(1), `{"version":0}`})
		node.wantClaims()
		node.finish(c)
		node.finish(node.claimOne(ids[1]))

		p.must(p.Runs.Cancel(p.Context(), ids[2], store.Actor{Name: "ann", Reason: "not needed"}, store.Tell{}))
		p.wantStatus(ids[2], model.Cancelled)
		p.must(p.Runs.Retry(p.Context(), ids[3], steerer))
		node.finish(node.claimOne(ids[3]))
	}},
	{"a run parked without a due time outlives its node", func(p *probe) {
		first := p.join()
		in := p.event("k", func(in *model.Intake) { in.Block = false })
		p.accept(in, p.event("k"))
		first.commit(change(first.claimOne(in.ID), model.Parked))
		first.leave(nil)
		second := p.join()
		p.equal("ready", second.beat().Ready, 0)
		p.must(p.Runs.Retry(p.Context(), in.ID, steerer))
		second.finish(second.claimOne(in.ID))
	}},
	{"retry is for failed runs alone", func(p *probe) {
		node := p.join()
		in := p.event("k")
		p.accept(in)
		refused := func(status string) {
			p.Helper()
			p.wantErr("retry of a "+status+" run", p.Runs.Retry(p.Context(), in.ID, steerer), store.ErrConflict)
		}
		refused("waiting")
		c := node.claimOne(in.ID)
		refused("running")
		c = node.parkAndBack(c, func() { refused("parked") })
		node.commit(change(c, model.Failed))
		for generation := 1; generation < 3; generation++ {
			p.must(p.Runs.Retry(p.Context(), in.ID, steerer))
			refused("retried")
			c = node.claimOne(in.ID)
			p.equal("generation", c.Generation, generation)
			node.commit(change(c, model.Failed))
		}
		p.must(p.Runs.Retry(p.Context(), in.ID, steerer))
		node.finish(node.claimOne(in.ID))
		refused("succeeded")
	}},
	{"an unordered failed run is retried too", func(p *probe) {
		node := p.join()
		id := p.accept(p.event("k", unordered))[0]
		node.commit(change(node.claimOne(id), model.Failed))
		p.must(p.Runs.Retry(p.Context(), id, steerer))
		node.finish(node.claimOne(id))
	}},
	{"cancel ends what no node owns", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k"), p.event("k"), p.event("s", at(time.Now().Add(time.Hour))),
			p.event("p"), p.event("f", unordered))
		c := node.wantClaims(ids[0], ids[4], ids[5])
		park := change(c[1], model.Parked)
		park.Due = time.Now().Add(time.Hour)
		node.commit(change(c[0], model.Waiting), park, change(c[2], model.Failed))
		for _, i := range []int{1, 0, 3, 4, 5} { // queued, ready, scheduled, parked, failed
			p.must(p.Runs.Cancel(p.Context(), ids[i], store.Actor{Name: "ann", Reason: "not needed"}, store.Tell{}))
			r := p.wantStatus(ids[i], model.Cancelled)
			p.equal("reason", r.Reason, "not needed")
			if r.Ended.IsZero() {
				p.Fatalf("run %s has no end", ids[i])
			}
			p.wantErr("cancel again", p.Runs.Cancel(p.Context(), ids[i], store.Actor{Name: "ann", Reason: "x"}, store.Tell{}), store.ErrConflict)
		}
		node.finish(node.claimOne(ids[2]))
		p.wantErr("cancel of a succeeded run", p.Runs.Cancel(p.Context(), ids[2], store.Actor{Name: "ann", Reason: "x"}, store.Tell{}), store.ErrConflict)
		p.equal("next", node.beat().Next, time.Duration(0))
	}},
	{"cancel asks the owner of a running run", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("k"), p.event("k2"), p.event("k3"))
		runs := node.wantClaims(ids...)
		p.equal("cancelled", node.beat().Cancelled, []string{})
		p.must(p.Runs.Cancel(p.Context(), ids[0], store.Actor{Name: "ann", Reason: "stop it"}, store.Tell{}))
		p.must(p.Runs.Cancel(p.Context(), ids[0], store.Actor{Name: "ann", Reason: "again"}, store.Tell{}))
		p.must(p.Runs.Cancel(p.Context(), ids[1], store.Actor{Name: "ann", Reason: "stop it"}, store.Tell{}))
		have := node.beat().Cancelled
		slices.Sort(have)
		p.equal("cancelled", have, ids[:2])
		for _, s := range []model.Status{model.Running, model.Parked, model.Waiting, model.Failed} {
			c := change(runs[0], s)
			c.Emit = []model.Intake{p.event("emitted")}
			p.wantErr(string(s), node.commitErrs(c)[0], store.ErrCancelled)
		}
		p.wantRuns(3)
		stopped := change(runs[0], model.Cancelled)
		stopped.Reason = "of the engine"
		node.commit(stopped, change(runs[1], model.Succeeded), change(runs[2], model.Running))
		p.equal("reason", p.wantStatus(ids[0], model.Cancelled).Reason, "stop it")
		p.equal("reason of one that was faster", p.wantStatus(ids[1], model.Succeeded).Reason, "")
		p.equal("cancelled", node.beat().Cancelled, []string{})
	}},
}

// parkAndBack parks a run, calls look, and claims the run again.
func (n *member) parkAndBack(c store.Claimed, look func()) store.Claimed {
	n.Helper()
	parked := change(c, model.Parked)
	parked.Due = n.beat().Now.Add(soon)
	n.commit(parked)
	look()
	n.waitReady()
	return n.claimOne(c.ID)
}

// pages reads a whole listing and returns the ids.
func (p *probe) pages(f store.RunFilter) []string {
	p.Helper()
	ids := []string{}
	for {
		runs, next, err := p.Runs.List(p.Context(), f)
		p.must(err)
		if len(runs) > f.Limit || len(runs) == 0 && len(ids) > 0 {
			p.Fatalf("a page of %d runs, want 1 to %d", len(runs), f.Limit)
		}
		for _, r := range runs {
			ids = append(ids, r.ID)
		}
		if next == "" {
			return ids
		}
		f.Cursor = next
	}
}

var settingCases = []storeCase{
	{"settings have revisions", func(p *probe) {
		node := p.join()
		set := func(name, value string, ifRevision int64) (int64, error) {
			return p.Settings.SetConfig(p.Context(), name, []byte(value), ifRevision, store.Actor{Name: "ann", Reason: value})
		}
		configs, none, err := p.Settings.Configs(p.Context())
		p.must(err)
		p.equal("configs", configs, map[string]store.Setting{})
		p.equal("revision", node.beat().Revision, none)

		_, err = set("A", "1", 5)
		p.wantErr("another revision than none", err, store.ErrConflict)
		first, err := set("A", "1", 0)
		p.must(err)
		_, err = set("A", "2", 0)
		p.wantErr("none, where there is one", err, store.ErrConflict)
		second, err := set("B", `{"x": 1}`, -1)
		p.must(err)
		third, err := set("A", "3", first)
		p.must(err)
		_, err = set("A", "4", first)
		p.wantErr("an old revision", err, store.ErrConflict)
		if none >= first || first >= second || second >= third {
			p.Fatalf("revisions do not grow: %d %d %d %d", none, first, second, third)
		}
		p.equal("revision", node.beat().Revision, third)
		configs, revision, err := p.Settings.Configs(p.Context())
		p.must(err)
		p.equal("revision", revision, third)
		if configs["A"].Changed.Before(configs["B"].Changed) {
			p.Fatalf("changed: %v", configs)
		}
		p.equal("configs", configs, map[string]store.Setting{
			"A": {Value: []byte("3"), Revision: third, Changed: configs["A"].Changed, By: store.Actor{Name: "ann", Reason: "3"}},
			"B": {Value: []byte(`{"x": 1}`), Revision: second, Changed: configs["B"].Changed, By: store.Actor{Name: "ann", Reason: `{"x": 1}`}},
		})
	}},
	{"of two who change the same setting one wins", func(p *probe) {
		type result struct{ err error }
		results := make(chan result, 8)
		for i := range cap(results) {
			go func() {
				_, err := p.Settings.SetConfig(p.Context(), "A", fmt.Append(nil, i), 0, store.Actor{Name: "ann"})
				results <- result{err}
			}()
		}
		won := 0
		for range cap(results) {
			if r := <-results; r.err == nil {
				won++
			} else {
				p.wantErr("the others", r.err, store.ErrConflict)
			}
		}
		p.equal("winners", won, 1)
	}},
	{"a context that has ended changes nothing", func(p *probe) {
		ctx, cancel := context.WithCancel(p.Context())
		cancel()
		if _, err := p.Inbox.Accept(ctx, 0, []model.Intake{p.event("k")}); err == nil {
			p.Fatal("accepted after the end of the context")
		}
		p.wantRuns(0)
	}},
}

// trimRunsCases are for stores that delete all but the last runs of a pipeline.
var trimRunsCases = []storeCase{
	{"all but the last runs of a pipeline are forgotten, and their events stay known", func(p *probe) {
		db := p.Trimmer
		if db == nil {
			return // it keeps all
		}
		node := p.join()
		of := func(pipeline string) func(*model.Intake) {
			return func(in *model.Intake) { in.Pipeline, in.Flow = pipeline, pipeline }
		}
		var ticks []model.Intake
		for range 7 {
			ticks = append(ticks, p.event("k", unordered, of("tick")))
		}
		other := p.event("k", unordered, of("other"))
		for _, in := range append(ticks[:6:6], other) {
			p.accept(in)
			node.commit(change(node.claimOne(in.ID), model.Succeeded))
		}
		p.accept(ticks[6]) // which does not end
		left := func(pipeline string) (ids []string) {
			records, _, err := p.Runs.List(p.Context(), store.RunFilter{Pipeline: pipeline, Limit: 10})
			p.must(err)
			for _, r := range records {
				ids = append(ids, r.ID)
			}
			return ids
		}
		thin := func(pipeline string, keep int) {
			p.eventually("all thinned", func() bool {
				_, err := db.TrimRuns(p.Context(), pipeline, keep)
				p.must(err)
				return len(left(pipeline)) <= keep+1
			})
		}
		thin("tick", 6)
		p.equal("runs of tick", len(left("tick")), 7)
		thin("tick", 2)
		p.equal("runs of tick", left("tick"), []string{ticks[6].ID, ticks[5].ID, ticks[4].ID})
		p.equal("runs of other", left("other"), []string{other.ID})
		again := p.acceptFor(0, ticks[0])
		p.equal("an event of a run that is forgotten", again[0].Duplicate, true)
	}},
	{"all but the last runs of a pipeline leave through an archive, with what they have", func(p *probe) {
		db := p.Trimmer
		if db == nil {
			return // it keeps all
		}
		node := p.join()
		var ticks []model.Intake
		for i := range 5 {
			tick := p.event(fmt.Sprint("k", i), unordered, func(in *model.Intake) {
				in.Pipeline, in.Event.Payload = "tick", map[string]any{"said": fmt.Sprint(i)}
			})
			p.accept(tick)
			end := change(node.claimOne(tick.ID), model.Cancelled)
			end.Error, end.Checkpoint = "what it said", []byte(`{"of":"it"}`)
			node.commit(end)
			ticks = append(ticks, tick)
		}
		keep := store.Retention{Last: map[string]int{"tick": 2, "other": 1}, Archived: true}
		page, err := db.Past(p.Context(), keep, 10, 1<<20)
		p.must(err)
		p.equal("runs that leave", len(page), 3)
		for _, r := range page {
			r.Place = ""
			p.equal("a run that leaves", r, p.run(r.ID))
			p.equal("its error", r.Error, "what it said")
		}
		p.must(db.Forget(p.Context(), page))
		page, err = db.Past(p.Context(), keep, 10, 1<<20)
		p.must(err)
		p.equal("runs that still leave", len(page), 0)
		p.wantRuns(2)
		again := p.acceptFor(0, ticks[0])
		p.equal("an event of a run that is archived", again[0].Duplicate, true)
	}},
}
