package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
)

func (p *probe) report(node, number int64, tallies ...model.Tally) {
	p.Helper()
	p.must(p.Degradation.Report(p.Context(), node, number, tallies))
}

// deliberate reads the input of a decision, with sorted tallies.
func (p *probe) deliberate(keep time.Duration) store.Deliberation {
	p.Helper()
	d, err := p.Degradation.Deliberate(p.Context(), keep)
	p.must(err)
	for _, list := range [][]model.Tally{d.Fresh, d.Past} {
		slices.SortFunc(list, func(a, b model.Tally) int {
			return cmp.Or(cmp.Compare(a.Second, b.Second), cmp.Compare(a.Path, b.Path))
		})
	}
	return d
}

// outages reads the state and its revision.
func (p *probe) outages() (string, int64) {
	p.Helper()
	state, revision, err := p.Degradation.Outages(p.Context())
	p.must(err)
	return string(state), revision
}

var fallbackCases = []storeCase{
	{"each report is fresh until a decision takes it in", func(p *probe) {
		a, b := model.Tally{Path: "p/s/a", Second: 11, Good: 1, Bad: 2}, model.Tally{Path: "p/s/b", Second: 12, Good: 3}
		c := model.Tally{Path: "p/s/a", Second: 13, Bad: 4}
		p.report(1, 1, a, b)
		p.report(1, 1, a, b)
		p.report(2, 1, c)
		for range 2 {
			d := p.deliberate(time.Hour)
			p.equal("fresh", d.Fresh, []model.Tally{a, b, c})
			p.equal("past", d.Past, []model.Tally{})
		}
		d := p.deliberate(time.Hour)
		p.must(p.Degradation.Conclude(p.Context(), store.Conclusion{Turn: d.Turn, Node: 1, Taken: d.Reported}))
		p.report(1, 1, a, b)
		p.report(2, 2, b)
		d = p.deliberate(time.Hour)
		p.equal("fresh", d.Fresh, []model.Tally{b})
		p.equal("past", d.Past, []model.Tally{a, b, c})
		p.equal("past, not asked for", p.deliberate(0).Past, []model.Tally{})

		// Reports that nobody needs are deleted, but never fresh ones.
		p.eventually("the reports are older than 20ms", func() bool { return len(p.deliberate(20*time.Millisecond).Past) == 0 })
		p.must(p.Degradation.Conclude(p.Context(), store.Conclusion{Turn: d.Turn, Node: 1, Taken: d.Taken, Forget: 10 * time.Millisecond}))
		d = p.deliberate(time.Hour)
		p.equal("fresh", d.Fresh, []model.Tally{b})
		p.equal("past", d.Past, []model.Tally{})
	}},
	{"of two decisions the first counts", func(p *probe) {
		node := p.join()
		state, revision := p.outages()
		p.equal("state", state, "")
		before := p.audits(0, 100)
		d := p.deliberate(0)
		if d.Decider != 0 || !d.Decided.IsZero() || d.Now.IsZero() {
			p.Fatalf("want no decider, have %+v", d)
		}
		out := store.Audited{
			Kind: store.AuditFallback, Name: "p/s/h", By: store.Actor{Name: "engine", Reason: "it fails"},
			After: []byte(`{"state":"out"}`),
		}
		back := out
		back.Before, back.After = out.After, []byte("null")
		p.must(p.Degradation.Conclude(p.Context(), store.Conclusion{
			Turn: d.Turn, Node: node.id, Taken: d.Reported, State: []byte(`{"a":1}`),
			Audits: []store.Audited{out, back},
		}))
		err := p.Degradation.Conclude(p.Context(), store.Conclusion{
			Turn: d.Turn, Node: node.id, Taken: d.Reported, State: []byte(`{"a":2}`),
			Audits: []store.Audited{out},
		})
		p.wantErr("a decision on what is not there any more", err, store.ErrConflict)

		state, now := p.outages()
		p.equal("state", state, `{"a":1}`)
		if now == revision {
			p.Fatalf("want another revision of the state than %d", revision)
		}
		b := node.beat()
		p.equal("revision told by beats", b.Outages, now)
		if age := b.Now.Sub(b.Decided); age < 0 || age > patience.For(time.Minute) {
			p.Fatalf("want the time of the decision by beats, have %v at %v", b.Decided, b.Now)
		}
		audits := p.audits(0, 100)
		p.equal("audits", len(audits), len(before)+2)
		p.equal("last audit", []any{audits[0].Kind, audits[0].Name, audits[0].By, string(audits[0].Before), string(audits[0].After)},
			[]any{back.Kind, back.Name, back.By, string(back.Before), string(back.After)})
		p.equal("revision of the settings", b.Revision, audits[0].Revision)

		// An operator is not a decider, and without a state nodes see nothing new.
		d = p.deliberate(0)
		p.equal("decider", d.Decider, node.id)
		p.must(p.Degradation.Conclude(p.Context(), store.Conclusion{Turn: d.Turn, Taken: d.Taken}))
		p.equal("decider", p.deliberate(0).Decider, node.id)
		p.equal("decided", p.deliberate(0).Decided, d.Decided)
		_, same := p.outages()
		p.equal("revision", same, now)
	}},
	{"an outage is probed once in a while on all nodes together", func(p *probe) {
		var taken atomic.Int32
		p.together(16, func(int) error {
			ok, err := p.Degradation.TakeProbe(p.Context(), "push", time.Hour)
			if ok {
				taken.Add(1)
			}
			return err
		})
		p.equal("taken at once", taken.Load(), int32(1))
		other, err := p.Degradation.TakeProbe(p.Context(), "mail", time.Hour)
		p.must(err)
		p.equal("of another outage", other, true)
		p.eventually("the next turn", func() bool {
			ok, err := p.Degradation.TakeProbe(p.Context(), "push", 5*time.Millisecond)
			p.must(err)
			return ok
		})
	}},
	{"no report is lost or taken in twice while others come in", func(p *probe) {
		const nodes, reports = 8, 25
		var reporting sync.WaitGroup
		for node := range int64(nodes) {
			reporting.Go(func() {
				for n := range int64(reports) {
					if err := p.Degradation.Report(p.Context(), node+1, n, []model.Tally{{Path: fmt.Sprint(node), Second: n, Bad: 1}}); err != nil {
						p.Error(err)
					}
				}
			})
		}
		sum, done := 0, make(chan struct{})
		go func() { reporting.Wait(); close(done) }()
		for last := false; ; {
			d := p.deliberate(0)
			err := p.Degradation.Conclude(p.Context(), store.Conclusion{Turn: d.Turn, Node: 1, Taken: d.Reported})
			if err != nil && !errors.Is(err, store.ErrConflict) {
				p.Fatal(err)
			}
			if err == nil {
				for _, t := range d.Fresh {
					sum += t.Bad
				}
			}
			if last {
				break
			}
			select {
			case <-done:
				last = true
			default:
			}
		}
		p.equal("failures taken in", sum, nodes*reports)
	}},
}
