package conformance

import (
	"fmt"

	"procaas/engine/model"
	"procaas/engine/store"
)

// activate activates a definition whose files are its hash.
func (p *probe) activate(hash string, onlyNew bool) (current string) {
	p.Helper()
	current, err := p.Bundles.Activate(p.Context(), hash, []byte("files of "+hash), onlyNew, store.Actor{Name: "ann", Reason: "why"})
	p.must(err)
	return current
}

func (p *probe) audits(before int64, limit int) []store.Audited {
	p.Helper()
	list, err := p.Audits.Audit(p.Context(), store.AuditFilter{Before: before, Limit: limit})
	p.must(err)
	return list
}

var bundleCases = []storeCase{
	{"bundles are kept byte for byte, and once", func(p *probe) {
		_, err := p.Bundles.Bundle(p.Context(), "h")
		p.wantErr("bundle", err, store.ErrNotFound)
		_, err = p.Bundles.Current(p.Context())
		p.wantErr("current", err, store.ErrNotFound)
		files := "a\x00b" + long(100_000)
		_, err = p.Bundles.Activate(p.Context(), "h", []byte(files), false, store.Actor{})
		p.must(err)
		_, err = p.Bundles.Activate(p.Context(), "h", []byte("other"), false, store.Actor{})
		p.must(err)
		have, err := p.Bundles.Bundle(p.Context(), "h")
		p.must(err)
		p.equal("bundle", string(have), files)
	}},
	{"the definition activated last is current", func(p *probe) {
		for _, hash := range []string{"a", "b", "b", "a"} {
			p.equal("activated", p.activate(hash, false), hash)
			current, err := p.Bundles.Current(p.Context())
			p.must(err)
			p.equal("current", current, hash)
		}
	}},
	{"a definition that is only kept becomes current in place of another one", func(p *probe) {
		p.activate("old", false)
		p.must(p.Bundles.Keep(p.Context(), "new", []byte("files of new")))
		p.must(p.Bundles.Keep(p.Context(), "new", []byte("other")))
		p.equal("at a start", p.activate("new", true), "old")
		for _, c := range []struct {
			old  string
			done bool
		}{{"other", false}, {"old", true}, {"old", false}} {
			done, err := p.Bundles.Promote(p.Context(), c.old, "new", store.Actor{Name: "ann", Reason: "why"})
			p.must(err)
			p.equal("promoted in place of "+c.old, done, c.done)
		}
		current, err := p.Bundles.Current(p.Context())
		p.must(err)
		p.equal("current", current, "new")
		files, err := p.Bundles.Bundle(p.Context(), "new")
		p.must(err)
		p.equal("files", string(files), "files of new")
		p.equal("audits", len(p.audits(0, 10)), 2)
	}},
	{"runs of a split keep the version of their key", func(p *probe) {
		split := model.Split{Old: "old", New: "new", Percent: 50}
		node := p.join()
		var events []model.Intake
		for i := range 20 {
			events = append(events, p.event(fmt.Sprint("k", i)))
		}
		ids := p.accept(events...)
		node.beat()
		got, err := p.Ledger.Claim(p.Context(), node.id, len(ids), split.String())
		p.must(err)
		p.equal("runs", len(got), len(ids))
		byVersion := map[string]int{}
		for _, c := range got {
			p.equal("version of "+c.Key, c.Bundle, model.VersionFor(split.String(), c.Flow, c.Key))
			p.equal("version of the record", p.run(c.ID).Bundle, c.Bundle)
			byVersion[c.Bundle]++
		}
		if len(byVersion) != 2 {
			p.Fatalf("have versions %v, want both", byVersion)
		}
		node.leave([]string{})
		node.beat()
		again, err := p.Ledger.Claim(p.Context(), node.id, len(ids), "third")
		p.must(err)
		for _, c := range again {
			p.equal("version of "+c.Key, c.Bundle, model.VersionFor(split.String(), c.Flow, c.Key))
		}
	}},
	{"new runs begin by what the store serves, whatever a node knows", func(p *probe) {
		node, other := p.join(), p.join()
		p.activate("old", false)
		p.must(p.Bundles.Keep(p.Context(), "new", []byte("files")))
		serve := func(s model.Split) {
			p.Helper()
			d, err := p.Degradation.Deliberate(p.Context(), 0)
			p.must(err)
			p.must(p.Degradation.Conclude(p.Context(), store.Conclusion{Turn: d.Turn, Taken: d.Taken, Serve: s}))
		}
		begin := func(what, knows string, want model.Split) {
			p.Helper()
			for i := range 10 {
				own := p.event(fmt.Sprint("k", i), owned)
				own.Bundle = knows
				run := p.acceptFor(node.id, own)[0].Claimed
				p.equal(what+": accepted "+run.Key, run.Bundle, model.VersionFor(want.String(), run.Flow, run.Key))
				node.finish(*run)
				p.accept(p.event(run.Key))
				other.waitReady()
				got, err := p.Ledger.Claim(p.Context(), other.id, 1, knows)
				p.must(err)
				p.equal(what+": claimed "+run.Key, got[0].Bundle, run.Bundle)
				p.equal(what+": record of "+run.Key, p.run(got[0].ID).Bundle, run.Bundle)
				other.finish(got...)
			}
		}
		old, now := model.Split{Old: "old"}, model.Split{Old: "new"}
		half := model.Split{Old: "old", New: "new", Percent: 50}
		begin("before", "unknown", old)
		serve(half)
		begin("at a share", "old", half)
		serve(old)
		begin("rolled back", half.String(), old)
		serve(half)
		promoted, err := p.Bundles.Promote(p.Context(), "old", "new", store.Actor{Name: "ann"})
		p.must(err)
		p.equal("promoted", promoted, true)
		begin("promoted", half.String(), now)
		serve(old) // which is not current any more
		begin("over", half.String(), now)
	}},
	{"definitions are listed with the runs that are on them", func(p *probe) {
		stored, err := p.Bundles.Stored(p.Context())
		p.must(err)
		p.equal("nothing", len(stored), 0)
		for _, hash := range []string{"a", "b", "a"} {
			p.activate(hash, false)
		}
		stored, err = p.Bundles.Stored(p.Context())
		p.must(err)
		p.equal("stored", []string{stored[0].Hash, stored[1].Hash}, []string{"b", "a"})
		if stored[1].Stored.IsZero() || stored[0].Stored.Before(stored[1].Stored) {
			p.Fatalf("stored at %v and %v", stored[1].Stored, stored[0].Stored)
		}
		node := p.join()
		p.accept(p.event("k1"), p.event("k2"), p.event("k3"))
		node.beat()
		_, err = p.Ledger.Claim(p.Context(), node.id, 2, "a")
		p.must(err)
		counts, err := p.Runs.CountBundles(p.Context())
		p.must(err)
		p.equal("runs", counts, map[string]int{"a": 2})
	}},
	{"a known definition does not overrule the current one unless it is told to", func(p *probe) {
		p.equal("first", p.activate("old", true), "old")
		p.equal("new", p.activate("new", true), "new")
		p.equal("old again", p.activate("old", true), "new")
		p.equal("told to", p.activate("old", false), "old")
		p.equal("the current one", p.activate("old", true), "old")
	}},
	{"nodes learn of another definition by the revision", func(p *probe) {
		node := p.join()
		last := node.beat().Revision
		for _, c := range []struct {
			hash    string
			onlyNew bool
			changes bool
		}{{"a", true, true}, {"a", false, false}, {"b", false, true}, {"a", true, false}, {"a", false, true}} {
			p.activate(c.hash, c.onlyNew)
			revision := node.beat().Revision
			if (revision > last) != c.changes {
				p.Fatalf("activate %s: revision %d after %d, want a change: %v", c.hash, revision, last, c.changes)
			}
			_, known, err := p.Settings.Configs(p.Context())
			p.must(err)
			p.equal("revision of the configs", known, revision)
			last = revision
		}
	}},
	{"of many that activate the same new definition one does", func(p *probe) {
		done := make(chan error)
		for range 8 {
			go func() {
				_, err := p.Bundles.Activate(p.Context(), "h", []byte("files"), true, store.Actor{Name: "ann"})
				done <- err
			}()
		}
		for range 8 {
			p.must(<-done)
		}
		p.equal("audits", len(p.audits(0, 100)), 1)
	}},
	{"every change is audited, the last first, page by page", func(p *probe) {
		p.equal("nothing", p.audits(0, 10), []store.Audited{})
		p.activate("a", false)
		for i := range 3 {
			_, err := p.Settings.SetConfig(p.Context(), "A", fmt.Append(nil, i), -1, store.Actor{Name: "bob", Reason: "x"})
			p.must(err)
		}
		p.activate("b", false)
		all := p.audits(0, 10)
		ann, bob := store.Actor{Name: "ann", Reason: "why"}, store.Actor{Name: "bob", Reason: "x"}
		want := []store.Audited{
			{By: ann, Kind: store.AuditDefinition, Before: []byte(`"a"`), After: []byte(`"b"`)},
			{By: bob, Kind: store.AuditConfig, Name: "A", Before: []byte("1"), After: []byte("2")},
			{By: bob, Kind: store.AuditConfig, Name: "A", Before: []byte("0"), After: []byte("1")},
			{By: bob, Kind: store.AuditConfig, Name: "A", After: []byte("0")},
			{By: ann, Kind: store.AuditDefinition, After: []byte(`"a"`)},
		}
		for i := range want {
			if i >= len(all) || all[i].Changed.IsZero() || i > 0 && all[i].Revision >= all[i-1].Revision {
				p.Fatalf("audit %d: %+v", i, all)
			}
			want[i].Revision, want[i].Changed, want[i].Hash = all[i].Revision, all[i].Changed, all[i].Hash
		}
		p.equal("audit", all, want)
		p.equal("first page", p.audits(0, 2), want[:2])
		p.equal("second page", p.audits(want[1].Revision, 2), want[2:4])
		p.equal("last page", p.audits(want[3].Revision, 2), want[4:])
	}},
}
