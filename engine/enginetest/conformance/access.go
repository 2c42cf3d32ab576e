package conformance

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

func (p *probe) setToken(name, value, hash string, ifRevision int64) (int64, error) {
	return p.Tokens.SetToken(p.Context(), name, []byte(value), []byte(hash), ifRevision, store.Actor{Name: "ann", Reason: "why"})
}

// chosen returns the revisions of the audit that a filter chooses.
func (p *probe) chosen(f store.AuditFilter) []int64 {
	p.Helper()
	f.Limit = 100
	list, err := p.Audits.Audit(p.Context(), f)
	p.must(err)
	out := []int64{}
	for _, a := range list {
		out = append(out, a.Revision)
	}
	return out
}

// chain returns the chain of the settings, which must be intact.
func (p *probe) chain(kept ...string) store.AuditChain {
	p.Helper()
	chains, err := p.Audits.VerifyAudit(p.Context(), kept)
	p.must(err)
	first := chains[0]
	first.Cell, first.Records = "", 0
	for _, c := range chains {
		if c.Break != nil {
			p.Fatalf("want chains that hold, have %+v", chains)
		}
		first.Records += c.Records
	}
	return first
}

var accessCases = []storeCase{
	{"audit records are a chain, whatever writes them", func(p *probe) {
		p.equal("before the first", p.chain(), store.AuditChain{Holds: []string{}})
		node := p.join()
		by := store.Actor{Name: "ann", Reason: "a\x00b"} // not all stores keep such a text
		ids := p.accept(p.event("a"), p.event("b"))
		failed := change(node.wantClaims(ids...)[0], model.Failed)
		node.commit(failed)
		p.must(p.Runs.Retry(p.Context(), ids[0], by))
		p.must(p.Runs.Cancel(p.Context(), ids[1], by, store.Tell{}))
		p.activate("a", false)
		p.control("p", `{"a": 1}`)
		_, err := p.Settings.SetControl(p.Context(), "p", nil, -1, by)
		p.must(err)
		_, err = p.setToken("ci", "{}", "x", -1)
		p.must(err)
		p.write(0, store.DocumentWrite{Kind: "k", Name: "n", Version: store.AnyVersion, Value: []byte("{}")},
			store.Audited{Kind: store.AuditCluster, Name: "one", By: by, After: []byte("{}")},
			store.Audited{Kind: store.AuditCluster, Name: "two", By: by, After: []byte("{}")})
		_, err = p.Settings.SetConfig(p.Context(), "A", []byte("1"), 99, by) // leaves no gap
		p.wantErr("another revision", err, store.ErrConflict)
		last := p.audits(0, 1)[0]
		c := p.chain()
		p.equal("chain", c, store.AuditChain{Records: 8, Last: last.Revision, Head: hex.EncodeToString(last.Hash), Holds: []string{}})
		p.control("p", `{"a": 2}`)
		later := p.chain("00", c.Head)
		p.equal("the earlier head is held", later.Holds, []string{c.Head})
	}},
	{"writers at once make one chain", func(p *probe) {
		done := make(chan error)
		for i := range 4 {
			go func() {
				var err error
				for n := range 5 {
					_, next := p.Settings.SetConfig(p.Context(), fmt.Sprint(i), fmt.Append(nil, n), -1, store.Actor{Name: "ann"})
					err = errors.Join(err, next)
				}
				done <- err
			}()
		}
		for range 4 {
			p.must(<-done)
		}
		p.equal("records", p.chain().Records, 20)
	}},
	{"a chain goes on behind what was removed for its age", func(p *probe) {
		for i := range 5 {
			p.control("p", fmt.Sprintf(`{"a": %d}`, i))
		}
		first := p.audits(0, 5)[4]
		p.eventually("all but the last are gone", func() bool {
			_, err := p.Audits.ForgetAudit(p.Context(), 0)
			p.must(err)
			return len(p.chosen(store.AuditFilter{Kind: store.AuditControl})) == 1
		})
		kept := p.audits(0, 9)
		last := kept[0]
		trimmed := p.chain()
		p.equal("chain", trimmed, store.AuditChain{
			Records: len(kept), Trimmed: kept[len(kept)-1].Revision - 1, Retention: "0s", Last: last.Revision,
			Head: hex.EncodeToString(last.Hash), Holds: []string{},
		})
		var trim store.AuditedTrim
		p.must(json.Unmarshal(last.After, &trim))
		p.equal("what the last record says", []any{last.Kind, trim.UpTo, trim.Retention}, []any{store.AuditTrim, trimmed.Trimmed, "0s"})
		if !trim.Newest.Before(last.Changed) || trim.Hash == "" || trim.Removed == 0 {
			p.Fatalf("want a trim of older records, have %+v of %s", trim, last.Changed)
		}
		_, err := p.Audits.ForgetAudit(p.Context(), 0)
		p.must(err)
		p.equal("records of trims are no reason for another", p.chain().Head, trimmed.Head)
		p.control("p", `{"a": 9}`)
		c := p.chain(hex.EncodeToString(first.Hash), trimmed.Head)
		p.equal("later", []any{c.Records, c.Holds}, []any{len(kept) + 1, []string{trimmed.Head}})
	}},
	{"tokens have revisions, and their hashes stay out of the audit", func(p *probe) {
		node := p.join()
		first, err := p.setToken("ci", `{"role": "operator"}`, "\x00hash", 0)
		p.must(err)
		_, err = p.setToken("ci", `{"role": "admin"}`, "other", 0)
		p.wantErr("none, where there is one", err, store.ErrConflict)
		_, err = p.setToken("bot", `{"role": "viewer"}`, "bot", 7)
		p.wantErr("another revision than none", err, store.ErrConflict)
		second, err := p.setToken("bot", `{"role": "viewer"}`, "bot", -1)
		p.must(err)
		third, err := p.setToken("ci", `{"revoked": true}`, "", first)
		p.must(err)
		p.equal("revision", node.beat().Revision, third)

		tokens, revision, err := p.Tokens.AllTokens(p.Context())
		p.must(err)
		p.equal("revision", revision, third)
		by := store.Actor{Name: "ann", Reason: "why"}
		p.equal("tokens", tokens, map[string]store.Setting{
			"ci":  {Value: []byte(`{"revoked": true}`), Revision: third, Changed: tokens["ci"].Changed, By: by},
			"bot": {Value: []byte(`{"role": "viewer"}`), Hash: []byte("bot"), Revision: second, Changed: tokens["bot"].Changed, By: by},
		})
		configs, _, err := p.Settings.Configs(p.Context())
		p.must(err)
		p.equal("configs", configs, map[string]store.Setting{})
		last := p.audits(0, 1)[0]
		p.equal("audit", last, store.Audited{
			Revision: third, Changed: last.Changed, By: by, Kind: store.AuditToken, Name: "ci",
			Before: []byte(`{"role": "operator"}`), After: []byte(`{"revoked": true}`), Hash: last.Hash,
		})
	}},
	{"what operators do to runs is audited with it", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("a"), p.event("b"), p.event("c"))
		runs := node.wantClaims(ids...)
		failed := change(runs[0], model.Failed)
		failed.FailedPath, failed.ErrorClass, failed.Error = "made/s/h", "503", "HTTP 503: no room"
		node.commit(failed)
		node.finish(runs[1])
		bob := store.Actor{Name: "bob", Reason: "it is back"}

		p.wantErr("retry of nobody", p.Runs.Retry(p.Context(), "nobody", bob), store.ErrNotFound)
		p.wantErr("retry of an ended run", p.Runs.Retry(p.Context(), ids[1], bob), store.ErrConflict)
		p.wantErr("cancel of an ended run", p.Runs.Cancel(p.Context(), ids[1], bob, store.Tell{}), store.ErrConflict)
		p.equal("audit of what was refused", p.audits(0, 10), []store.Audited{})

		p.must(p.Runs.Retry(p.Context(), ids[0], bob))
		p.must(p.Runs.Cancel(p.Context(), ids[0], bob, store.Tell{}))
		p.must(p.Runs.Cancel(p.Context(), ids[2], bob, store.Tell{}))
		before := store.AuditedRun{Pipeline: "made", Status: model.Failed, FailedPath: "made/s/h", ErrorClass: "503", Error: "HTTP 503: no room"}
		want := []store.Audited{
			store.AuditedRun{Pipeline: "made", Status: model.Running}.Cancelled(ids[2], bob),
			store.AuditedRun{Pipeline: "made", Status: model.Waiting, Generation: 1}.Cancelled(ids[0], bob),
			before.Retried(ids[0], bob),
		}
		have := p.audits(0, 10)
		for i := range have {
			if i < len(want) {
				want[i].Revision, want[i].Changed, want[i].Hash = have[i].Revision, have[i].Changed, have[i].Hash
			}
		}
		p.equal("audit", have, want)
		p.equal("reason of the run", p.run(ids[0]).Reason, "it is back")
	}},
	{"audit records are chosen by what they tell", func(p *probe) {
		start := time.Now().Add(-time.Minute)
		config, err := p.Settings.SetConfig(p.Context(), "p", []byte("1"), -1, store.Actor{Name: "bob"})
		p.must(err)
		pipeline, handler := p.control("p", `{"a": 1}`), p.control("p/s/h", `{"a": 1}`)
		other, token := p.control("p-2/s", `{"a": 1}`), int64(0)
		token, err = p.setToken("p_s", `{}`, "x", -1)
		p.must(err)
		for _, c := range []struct {
			what string
			f    store.AuditFilter
			want []int64
		}{
			{"all", store.AuditFilter{}, []int64{token, other, handler, pipeline, config}},
			{"kind", store.AuditFilter{Kind: store.AuditControl}, []int64{other, handler, pipeline}},
			{"name", store.AuditFilter{Name: "p"}, []int64{handler, pipeline, config}},
			{"name below", store.AuditFilter{Name: "p/s"}, []int64{handler}},
			{"part of a name", store.AuditFilter{Name: "p/s/"}, []int64{}},
			{"who", store.AuditFilter{By: "bob"}, []int64{config}},
			{"before", store.AuditFilter{Before: other}, []int64{handler, pipeline, config}},
			{"since", store.AuditFilter{Since: start}, []int64{token, other, handler, pipeline, config}},
			{"until", store.AuditFilter{Until: start}, []int64{}},
			{
				"all together",
				store.AuditFilter{Kind: store.AuditControl, Name: "p", By: "ann", Since: start, Before: token},
				[]int64{handler, pipeline},
			},
		} {
			p.equal(c.what, p.chosen(c.f), c.want)
		}
	}},
	{"the audit forgets what is old, but the last record", func(p *probe) {
		node := p.join()
		first, second := p.control("p", `{"a": 1}`), p.control("p", `{"a": 2}`)
		more, err := p.Audits.ForgetAudit(p.Context(), time.Hour)
		p.must(err)
		p.equal("young ones", p.chosen(store.AuditFilter{}), []int64{second, first})
		p.eventually("all are older than now", func() bool {
			more, err = p.Audits.ForgetAudit(p.Context(), 0)
			p.must(err)
			return len(p.chosen(store.AuditFilter{Kind: store.AuditControl})) == 1
		})
		p.equal("the rest", p.chosen(store.AuditFilter{Kind: store.AuditControl}), []int64{second})
		p.equal("more", more, false)
		p.equal("revision", node.beat().Revision, p.chosen(store.AuditFilter{})[0])
		if third := p.control("p", `{"a": 3}`); third <= second {
			p.Fatalf("revision %d after %d", third, second)
		}
	}},
}
