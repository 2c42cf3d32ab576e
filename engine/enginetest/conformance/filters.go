package conformance

import (
	"errors"
	"slices"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// A failure is how a run of a filter's test has failed.
type failure struct{ path, class, text string }

// failed makes failed runs, and returns their ids in order.
func (n *member) failed(failures ...failure) []string {
	n.Helper()
	var ids []string
	for _, f := range failures {
		id := n.accept(n.event("k-"+f.path, unordered))[0]
		c := change(n.claimOne(id), model.Failed)
		c.FailedPath, c.ErrorClass, c.Error = f.path, f.class, f.text
		n.commit(c)
		ids = append(ids, id)
	}
	return ids
}

// oldest lists the runs of a filter, page by page, oldest first.
func (p *probe) oldest(f store.RunFilter) []string {
	p.Helper()
	f.Oldest, f.Limit = true, 2
	return p.pages(f)
}

// pick returns some of ids.
func pick(ids []string, indexes ...int) []string {
	out := []string{}
	for _, i := range indexes {
		out = append(out, ids[i])
	}
	return out
}

// seals reports whether the store refuses a filter, because it has the texts that the filter looks into only sealed. It must
// refuse it everywhere then.
func (p *probe) seals(f store.RunFilter) bool {
	p.Helper()
	_, _, err := p.Runs.List(p.Context(), f)
	if !errors.Is(err, store.ErrSealed) {
		return false
	}
	_, err = p.Runs.Count(p.Context(), f)
	p.wantErr("count", err, store.ErrSealed)
	return true
}

var filterCases = []storeCase{
	{"runs are found by a part of their event", func(p *probe) {
		node := p.join()
		of := func(payload any) model.Intake {
			e := p.event("k", unordered)
			e.Event.Payload = payload
			return e
		}
		ids := p.accept(of(map[string]any{"city": "Köln"}), of(map[string]any{"city": "Kairo"}), of([]any{"Köln"}))
		node.finish(node.claimOne(ids[0]))
		if p.seals(store.RunFilter{Text: "x"}) {
			return
		}
		p.equal("by a word", p.oldest(store.RunFilter{Text: "Köln"}), pick(ids, 0, 2))
		p.equal("by a member", p.oldest(store.RunFilter{Text: `"city":"K`}), pick(ids, 0, 1))
		p.equal("none", p.oldest(store.RunFilter{Text: "%"}), []string{})
	}},
	{"failed runs are found by handler, class and text", func(p *probe) {
		node := p.join()
		ids := node.failed(
			failure{"made/pay/charge", "503", "503 from POST: 100% busy"},
			failure{"made/pay/charge-back", "timeout", "no end within 2s"},
			failure{"made/pay/charge", "404", "404 from POST"},
			failure{"made/mail/send", "connection", "refused_"},
			failure{"", "other", "internal error: Ünwahr 'quoted'"},
			failure{"made/pay/charge/compensate", "403", "403 from DELETE"},
			failure{"undo/all/compensate", "402", "402 from PUT"}, // a handler of that name
		)
		node.finish(node.claimOne(p.accept(p.event("fine"))[0]))
		for _, c := range []struct {
			filter store.RunFilter
			want   []int
		}{
			{store.RunFilter{FailedPath: "made"}, []int{0, 1, 2, 3, 5}},
			{store.RunFilter{FailedPath: "made/pay"}, []int{0, 1, 2, 5}},
			{store.RunFilter{FailedPath: "made/pay/charge"}, []int{0, 2, 5}},
			{store.RunFilter{NotUndone: true}, []int{5}},
			{store.RunFilter{NotUndone: true, FailedPath: "undo"}, nil},
			{store.RunFilter{FailedPath: "made/pa"}, nil},
			{store.RunFilter{FailedPath: "%"}, nil},
			{store.RunFilter{ErrorClass: "503"}, []int{0}},
			{store.RunFilter{ErrorClass: "5xx"}, []int{0}},
			{store.RunFilter{ErrorClass: "4xx"}, []int{2, 5, 6}},
			{store.RunFilter{ErrorClass: "status"}, []int{0, 2, 5, 6}},
			{store.RunFilter{ErrorClass: "timeout"}, []int{1}},
			{store.RunFilter{ErrorClass: "other"}, []int{4}},
			{store.RunFilter{Error: "from POST"}, []int{0, 2}},
			{store.RunFilter{Error: "0% b"}, []int{0}},
			{store.RunFilter{Error: "%"}, []int{0}},
			{store.RunFilter{Error: "_"}, []int{3}},
			{store.RunFilter{Error: "Ünwahr 'quo"}, []int{4}},
			{store.RunFilter{FailedPath: "made/pay", ErrorClass: "status", Error: "404", Status: model.Failed}, []int{2}},
			{store.RunFilter{ErrorClass: "status", Status: model.Succeeded}, nil},
		} {
			if c.filter.Error != "" && p.seals(c.filter) {
				continue
			}
			if have, want := p.oldest(c.filter), pick(ids, c.want...); !slices.Equal(have, want) {
				p.Fatalf("%+v: want runs %v, have %v", c.filter, want, have)
			}
		}
	}},
	{"why a run failed is kept until it is retried, and after a cancel", func(p *probe) {
		node := p.join()
		ids := node.failed(failure{"made/a/b", "503", "busy"}, failure{"made/a/b", "timeout", "late"})
		r := p.run(ids[0])
		p.equal("failure", []string{r.FailedPath, r.ErrorClass, r.Error}, []string{"made/a/b", "503", "busy"})
		p.must(p.Runs.Retry(p.Context(), ids[0], steerer))
		r = p.run(ids[0])
		p.equal("failure of a retried run", []string{r.FailedPath, r.ErrorClass, r.Error}, []string{"", "", ""})
		p.must(p.Runs.Cancel(p.Context(), ids[1], store.Actor{Name: "ann", Reason: "enough"}, store.Tell{}))
		r = p.run(ids[1])
		p.equal("failure of a cancelled run", []string{r.FailedPath, r.ErrorClass, r.Error}, []string{"made/a/b", "timeout", "late"})
		p.equal("found", p.oldest(store.RunFilter{ErrorClass: "timeout"}), ids[1:])
		p.equal("found among live ones", p.oldest(store.RunFilter{ErrorClass: "timeout", Live: true}), []string{})
	}},
	{"runs are found by when they were accepted", func(p *probe) {
		node := p.join()
		var ids []string
		var times []time.Time
		for range 4 {
			ids = append(ids, p.accept(p.event("k"))...)
			times = append(times, p.run(ids[len(ids)-1]).Accepted)
			p.eventually("a later time", func() bool { return node.beat().Now.After(times[len(times)-1]) })
		}
		node.finish(node.claimOne(ids[0]))
		node.finish(node.claimOne(ids[1]))
		p.equal("since", p.oldest(store.RunFilter{Since: times[1]}), ids[1:])
		p.equal("until", p.oldest(store.RunFilter{Until: times[2]}), ids[:2])
		p.equal("between", p.oldest(store.RunFilter{Since: times[1], Until: times[3]}), ids[1:3])
		p.equal("nothing", p.oldest(store.RunFilter{Since: times[3].Add(time.Hour)}), []string{})
	}},
	{"runs are found by when they failed", func(p *probe) {
		node := p.join()
		old := p.accept(p.event("old", unordered), p.event("fine", unordered))
		held := []store.Claimed{node.claimOne(old[0]), node.claimOne(old[1])}
		first := node.failed(failure{"made/a/b", "503", "busy"}, failure{"made/a/b", "503", "busy"})
		times := []time.Time{p.run(first[1]).Ended}
		p.eventually("a later time", func() bool { return node.beat().Now.After(times[0]) })
		node.commit(change(held[0], model.Failed))
		node.finish(held[1])
		p.must(p.Runs.Cancel(p.Context(), first[0], store.Actor{Name: "ann", Reason: "enough"}, store.Tell{}))
		p.equal("since the first", p.oldest(store.RunFilter{FailedSince: times[0]}), []string{old[0], first[1]})
		p.equal("since later", p.oldest(store.RunFilter{FailedSince: times[0].Add(time.Microsecond)}), old[:1])
		p.equal("accepted before", p.oldest(store.RunFilter{FailedSince: times[0], Until: p.run(first[1]).Accepted}), old[:1])
		p.equal("nothing", p.oldest(store.RunFilter{FailedSince: times[0].Add(time.Hour)}), []string{})
	}},
	{"live runs are those that may go on, begun ones have a definition", func(p *probe) {
		node := p.join()
		byStatus := map[model.Status]string{}
		for _, s := range []model.Status{model.Succeeded, model.Cancelled, model.Ignored, model.Failed, model.Parked, model.Running} {
			id := p.accept(p.event("k-" + string(s)))[0]
			c := change(node.claimOne(id), s)
			c.Due = time.Now().Add(time.Hour)
			node.commit(c)
			byStatus[s] = id
		}
		waiting := p.accept(p.event("k"))[0]
		live := []string{byStatus[model.Failed], byStatus[model.Parked], byStatus[model.Running], waiting}
		p.equal("live", p.oldest(store.RunFilter{Live: true}), live)
		p.equal("live and begun", p.oldest(store.RunFilter{Live: true, Begun: true}), live[:3])
		p.equal("live and waiting", p.oldest(store.RunFilter{Live: true, Status: model.Waiting}), live[3:])
		p.equal("live and succeeded", p.oldest(store.RunFilter{Live: true, Status: model.Succeeded}), []string{})
		p.equal("begun and succeeded", p.oldest(store.RunFilter{Begun: true, Status: model.Succeeded}), []string{byStatus[model.Succeeded]})
		p.equal("begun and waiting", p.oldest(store.RunFilter{Begun: true, Status: model.Waiting}), []string{})
	}},
	{"a walk from the oldest meets each run once, though they change", func(p *probe) {
		node := p.join()
		ids := node.failed(make([]failure, 5)...)
		f := store.RunFilter{Status: model.Failed, Oldest: true, Limit: 2}
		var met []string
		for {
			runs, next, err := p.Runs.List(p.Context(), f)
			p.must(err)
			for _, r := range runs {
				met = append(met, r.ID)
				p.must(p.Runs.Retry(p.Context(), r.ID, steerer))
				node.commit(change(node.claimOne(r.ID), model.Failed)) // fails again
			}
			f.Cursor = next
			if next == "" {
				break
			}
		}
		p.equal("runs", met, ids)
	}},
	{"a listing goes on after any of its runs", func(p *probe) {
		ids := p.accept(p.event("k"), p.event("l"), p.event("m"), p.event("n"))
		for _, oldest := range []bool{true, false} {
			want := slices.Clone(ids)
			if !oldest {
				slices.Reverse(want)
			}
			runs, _, err := p.Runs.List(p.Context(), store.RunFilter{Oldest: oldest, Limit: len(ids)})
			p.must(err)
			for i, r := range runs[:len(runs)-1] {
				rest, _, err := p.Runs.List(p.Context(), store.RunFilter{Oldest: oldest, Limit: len(ids), Cursor: r.Place})
				p.must(err)
				var have []string
				for _, r := range rest {
					have = append(have, r.ID)
				}
				p.equal("runs after the place of one", have, want[i+1:])
			}
		}
	}},
	{"a page holds one run at least, whatever its limit says", func(p *probe) {
		ids := p.accept(p.event("k"), p.event("k"))
		for _, limit := range []int{-1, 0, 1} {
			runs, next, err := p.Runs.List(p.Context(), store.RunFilter{Oldest: true, Limit: limit})
			p.must(err)
			if len(runs) != 1 || runs[0].ID != ids[0] || next == "" {
				p.Fatalf("limit %d: want run %s and a cursor, have %d runs and the cursor %q", limit, ids[0], len(runs), next)
			}
		}
	}},
	{"runs are counted by what they have in common", func(p *probe) {
		node := p.join()
		node.failed(
			failure{"made/a/x", "503", "1"}, failure{"made/a/x", "503", "2"}, failure{"made/a/x", "timeout", "3"},
			failure{"made/b/y", "503", "4"},
		)
		node.finish(node.claimOne(p.accept(p.event("k"))[0]))
		p.accept(p.event("k"), p.event("k"))
		count := func(f store.RunFilter) []store.RunCount {
			p.Helper()
			counts, err := p.Runs.Count(p.Context(), f)
			p.must(err)
			return counts
		}
		failures := []store.RunCount{
			{Pipeline: "made", FailedPath: "made/a/x", ErrorClass: "503", Runs: 2},
			{Pipeline: "made", FailedPath: "made/a/x", ErrorClass: "timeout", Runs: 1},
			{Pipeline: "made", FailedPath: "made/b/y", ErrorClass: "503", Runs: 1},
		}
		all := append([]store.RunCount{{Pipeline: "made", Runs: 3}}, failures...)
		p.equal("all", count(store.RunFilter{}), all)
		p.equal("failed", count(store.RunFilter{Status: model.Failed, Limit: 1}), failures)
		p.equal("by handler", count(store.RunFilter{FailedPath: "made/a"}), failures[:2])
		p.equal("succeeded", count(store.RunFilter{Status: model.Succeeded}), []store.RunCount{{Pipeline: "made", Runs: 1}})
		p.equal("none", count(store.RunFilter{Pipeline: "other"}), []store.RunCount{})
	}},
}
