package enginetest

import (
	"time"

	"procaas/engine"
)

func (p *probe) setToken(name, value, hash string, ifRevision int64) (int64, error) {
	return p.SetToken(p.Context(), name, []byte(value), []byte(hash), ifRevision, engine.Actor{Name: "ann", Reason: "why"})
}

// chosen gives the revisions that a filter chooses of the audit.
func (p *probe) chosen(f engine.AuditFilter) []int64 {
	p.Helper()
	f.Limit = 100
	list, err := p.Audit(p.Context(), f)
	p.must(err)
	out := []int64{}
	for _, a := range list {
		out = append(out, a.Revision)
	}
	return out
}

var accessCases = []storeCase{
	{"tokens have revisions, and their hashes stay out of the audit", func(p *probe) {
		node := p.join()
		first, err := p.setToken("ci", `{"role": "operator"}`, "\x00hash", 0)
		p.must(err)
		_, err = p.setToken("ci", `{"role": "admin"}`, "other", 0)
		p.wantErr("none, where there is one", err, engine.ErrConflict)
		_, err = p.setToken("bot", `{"role": "viewer"}`, "bot", 7)
		p.wantErr("another revision than none", err, engine.ErrConflict)
		second, err := p.setToken("bot", `{"role": "viewer"}`, "bot", -1)
		p.must(err)
		third, err := p.setToken("ci", `{"revoked": true}`, "", first)
		p.must(err)
		p.equal("revision", p.beat(node).Revision, third)

		tokens, revision, err := p.Tokens(p.Context())
		p.must(err)
		p.equal("revision", revision, third)
		by := engine.Actor{Name: "ann", Reason: "why"}
		p.equal("tokens", tokens, map[string]engine.Setting{
			"ci":  {Value: []byte(`{"revoked": true}`), Revision: third, Changed: tokens["ci"].Changed, By: by},
			"bot": {Value: []byte(`{"role": "viewer"}`), Hash: []byte("bot"), Revision: second, Changed: tokens["bot"].Changed, By: by},
		})
		configs, _, err := p.Configs(p.Context())
		p.must(err)
		p.equal("configs", configs, map[string]engine.Setting{})
		last := p.audits(0, 1)[0]
		p.equal("audit", last, engine.Audited{
			Revision: third, Changed: last.Changed, By: by, Kind: engine.AuditToken, Name: "ci",
			Before: []byte(`{"role": "operator"}`), After: []byte(`{"revoked": true}`),
		})
	}},
	{"what operators do to runs is audited with it", func(p *probe) {
		node := p.join()
		ids := p.accept(p.event("a"), p.event("b"), p.event("c"))
		runs := p.wantClaims(node, ids...)
		failed := change(runs[0], engine.Failed)
		failed.FailedPath, failed.ErrorClass = "made/s/h", "503"
		p.commit(node, failed)
		p.finish(node, runs[1])
		bob := engine.Actor{Name: "bob", Reason: "it is back"}

		p.wantErr("retry of nobody", p.Retry(p.Context(), "nobody", bob), engine.ErrNotFound)
		p.wantErr("retry of an ended run", p.Retry(p.Context(), ids[1], bob), engine.ErrConflict)
		p.wantErr("cancel of an ended run", p.Cancel(p.Context(), ids[1], bob), engine.ErrConflict)
		p.equal("audit of what was refused", p.audits(0, 10), []engine.Audited{})

		p.must(p.Retry(p.Context(), ids[0], bob))
		p.must(p.Cancel(p.Context(), ids[0], bob))
		p.must(p.Cancel(p.Context(), ids[2], bob))
		before := engine.AuditedRun{Pipeline: "made", Status: engine.Failed, FailedPath: "made/s/h", ErrorClass: "503"}
		want := []engine.Audited{
			engine.AuditedRun{Pipeline: "made", Status: engine.Running}.Cancelled(ids[2], bob),
			engine.AuditedRun{Pipeline: "made", Status: engine.Waiting, Generation: 1}.Cancelled(ids[0], bob),
			before.Retried(ids[0], bob),
		}
		have := p.audits(0, 10)
		for i := range have {
			if i < len(want) {
				want[i].Revision, want[i].Changed = have[i].Revision, have[i].Changed
			}
		}
		p.equal("audit", have, want)
		p.equal("reason of the run", p.run(ids[0]).Reason, "it is back")
	}},
	{"audit records are chosen by what they tell", func(p *probe) {
		start := time.Now().Add(-time.Minute)
		config, err := p.SetConfig(p.Context(), "p", []byte("1"), -1, engine.Actor{Name: "bob"})
		p.must(err)
		pipeline, handler := p.control("p", `{"a": 1}`), p.control("p/s/h", `{"a": 1}`)
		other, token := p.control("p-2/s", `{"a": 1}`), int64(0)
		token, err = p.setToken("p_s", `{}`, "x", -1)
		p.must(err)
		for _, c := range []struct {
			what string
			f    engine.AuditFilter
			want []int64
		}{
			{"all", engine.AuditFilter{}, []int64{token, other, handler, pipeline, config}},
			{"kind", engine.AuditFilter{Kind: engine.AuditControl}, []int64{other, handler, pipeline}},
			{"name", engine.AuditFilter{Name: "p"}, []int64{handler, pipeline, config}},
			{"name below", engine.AuditFilter{Name: "p/s"}, []int64{handler}},
			{"part of a name", engine.AuditFilter{Name: "p/s/"}, []int64{}},
			{"who", engine.AuditFilter{By: "bob"}, []int64{config}},
			{"before", engine.AuditFilter{Before: other}, []int64{handler, pipeline, config}},
			{"since", engine.AuditFilter{Since: start}, []int64{token, other, handler, pipeline, config}},
			{"until", engine.AuditFilter{Until: start}, []int64{}},
			{"all together", engine.AuditFilter{Kind: engine.AuditControl, Name: "p", By: "ann", Since: start, Before: token}, []int64{handler, pipeline}},
		} {
			p.equal(c.what, p.chosen(c.f), c.want)
		}
	}},
	{"the audit forgets what is old, but the last record", func(p *probe) {
		node := p.join()
		first, second := p.control("p", `{"a": 1}`), p.control("p", `{"a": 2}`)
		more, err := p.ForgetAudit(p.Context(), time.Hour)
		p.must(err)
		p.equal("young ones", p.chosen(engine.AuditFilter{}), []int64{second, first})
		p.eventually("all are older than now", func() bool {
			more, err = p.ForgetAudit(p.Context(), 0)
			p.must(err)
			return len(p.chosen(engine.AuditFilter{})) == 1
		})
		p.equal("the rest", p.chosen(engine.AuditFilter{}), []int64{second})
		p.equal("more", more, false)
		p.equal("revision", p.beat(node).Revision, second)
		if third := p.control("p", `{"a": 3}`); third <= second {
			p.Fatalf("revision %d after %d", third, second)
		}
	}},
}
