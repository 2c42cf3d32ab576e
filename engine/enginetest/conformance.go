package enginetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
)

// Conformance checks that a store meets the contract of the engine's ports. open returns an empty
// store for the test and closes it at the end. With names of groups it checks only these.
func Conformance(t *testing.T, open func(t *testing.T) store.Store, only ...string) {
	groups := []struct {
		name  string
		cases []storeCase
	}{
		{"Inbox", inboxCases},
		{"Order", orderCases},
		{"Ledger", ledgerCases},
		{"Nodes", nodeCases},
		{"Losses", lossCases},
		{"Runs", runCases},
		{"LeftOut", leftOutCases},
		{"Filters", filterCases},
		{"Settings", settingCases},
		{"Controls", controlCases},
		{"Access", accessCases},
		{"Bundles", bundleCases},
		{"Moves", moveCases},
		{"Undo", undoCases},
		{"Awaits", awaitCases},
		{"Fallback", fallbackCases},
		{"Documents", documentCases},
		{"TrimRuns", trimRunsCases},
		{"Race", raceCases},
	}
	checks := func(name string) bool { return len(only) == 0 || slices.Contains(only, name) }
	for _, g := range groups {
		if !checks(g.name) {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range g.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					p := newProbe(t, open(t))
					p.open = func() store.Store { return open(t) }
					c.run(p)
				})
			}
		})
	}
	if checks("Model") {
		t.Run("Model", func(t *testing.T) {
			t.Parallel()
			checkModel(t, open)
		})
	}
}

// A storeCase is one promise of the ports.
type storeCase struct {
	name string
	run  func(*probe)
}

// A probe uses a store in a test and fails the test at the first unexpected result.
type probe struct {
	testing.TB
	store.Store
	ids  atomic.Int64
	open func() store.Store // opens another empty store of the same kind
}

func newProbe(t testing.TB, s store.Store) *probe { return &probe{TB: t, Store: s} }

// steerer is the operator who retries and cancels runs.
var steerer = store.Actor{Name: "ann", Reason: "why"}

// lease is longer than any test.
const lease = time.Hour

// event makes the intake of an ordered event of flow "orders".
func (p *probe) event(key string, with ...func(*model.Intake)) model.Intake {
	n := p.ids.Add(1)
	in := model.Intake{
		ID: fmt.Sprintf("run-%06d", n), Hash: fmt.Sprintf("hash-%d", n),
		Event: model.Event{
			ID: fmt.Sprintf("event-%d", n), Source: "test", Type: "made", Key: key,
			Time: time.UnixMicro(1_700_000_000_000_000 + n).UTC(), Payload: map[string]any{"n": int(n)},
		},
		Flow: "orders", Key: key, Ordered: true, Block: true, Dedup: true, Pipeline: "made",
	}
	for _, f := range with {
		f(&in)
	}
	return in
}

// The variants of events.
func unordered(in *model.Intake) { in.Ordered, in.Block = false, false }
func skipping(in *model.Intake)  { in.Block = false }
func owned(in *model.Intake)     { in.Own = true }

func at(when time.Time) func(*model.Intake) {
	return func(in *model.Intake) { in.Event.At = when.UTC().Truncate(time.Microsecond) }
}

func priority(n int) func(*model.Intake) {
	return func(in *model.Intake) { in.Event.Priority = n }
}

// accept accepts events that must all be new, and returns the ids of their runs.
func (p *probe) accept(runs ...model.Intake) []string {
	p.Helper()
	ids := make([]string, len(runs))
	for i, a := range p.acceptFor(0, runs...) {
		if a.Err != nil || a.Duplicate || a.Run != runs[i].ID {
			p.Fatalf("event %d: want it accepted as run %s, have %+v", i, runs[i].ID, a)
		}
		ids[i] = a.Run
	}
	return ids
}

func (p *probe) acceptFor(node int64, runs ...model.Intake) []store.Accepted {
	p.Helper()
	results, err := p.Inbox.Accept(p.Context(), node, runs)
	if err != nil {
		p.Fatalf("accept: %v", err)
	}
	if len(results) != len(runs) {
		p.Fatalf("accept: want %d results, have %d", len(runs), len(results))
	}
	return results
}

func (p *probe) join() int64 {
	p.Helper()
	node, err := p.Ledger.Join(p.Context(), p.Name(), lease)
	if err != nil {
		p.Fatalf("join: %v", err)
	}
	return node
}

func (p *probe) beat(node int64) (b store.Beat) {
	p.Helper()
	p.eventually("a beat that counts", func() bool {
		b = p.beatOnce(node)
		return b.Owned >= 0
	})
	return b
}

// beatOnce is one beat. If the machine is busy, the store may skip its counts.
func (p *probe) beatOnce(node int64) store.Beat {
	p.Helper()
	b, err := p.Ledger.Beat(p.Context(), node, lease, "served")
	if err != nil {
		p.Fatalf("beat of node %d: %v", node, err)
	}
	return b
}

func (p *probe) claim(node int64, limit int) []store.Claimed {
	p.Helper()
	runs, err := p.Ledger.Claim(p.Context(), node, limit, "")
	if err != nil {
		p.Fatalf("claim for node %d: %v", node, err)
	}
	return runs
}

// claimOne claims one run, which must have this id.
func (p *probe) claimOne(node int64, id string) store.Claimed {
	p.Helper()
	runs := p.claim(node, 1)
	if len(runs) != 1 || runs[0].ID != id {
		p.Fatalf("claim: want run %s, have %v", id, idsOf(runs))
	}
	return runs[0]
}

// wantClaims claims all ready runs and compares their order.
func (p *probe) wantClaims(node int64, want ...string) []store.Claimed {
	p.Helper()
	runs := p.claim(node, 1000)
	if have := idsOf(runs); !slices.Equal(have, want) {
		p.Fatalf("claim: want runs %v, have %v", want, have)
	}
	return runs
}

func idsOf(runs []store.Claimed) []string {
	ids := []string{}
	for _, r := range runs {
		ids = append(ids, r.ID)
	}
	return ids
}

// change makes the next change of a claimed run.
func change(c store.Claimed, s model.Status) model.Change {
	return model.Change{
		Run: c.ID, Version: c.Version, Status: s, Bundle: "bundle", Pipeline: c.Pipeline,
		Checkpoint: fmt.Appendf(nil, `{"version":%d}`, c.Version),
	}
}

// commit commits changes that must all succeed.
func (p *probe) commit(node int64, changes ...model.Change) {
	p.Helper()
	for i, err := range p.commitErrs(node, changes...) {
		if err != nil {
			p.Fatalf("commit of run %s as %s: %v", changes[i].Run, changes[i].Status, err)
		}
	}
}

func (p *probe) commitErrs(node int64, changes ...model.Change) []error {
	p.Helper()
	errs, err := p.Ledger.Commit(p.Context(), node, changes)
	if err != nil {
		p.Fatalf("commit: %v", err)
	}
	if len(errs) != len(changes) {
		p.Fatalf("commit: want %d errors, have %d", len(changes), len(errs))
	}
	return errs
}

// finish ends claimed runs successfully.
func (p *probe) finish(node int64, runs ...store.Claimed) {
	p.Helper()
	var changes []model.Change
	for _, c := range runs {
		changes = append(changes, change(c, model.Succeeded))
	}
	p.commit(node, changes...)
}

func (p *probe) run(id string) store.RunRecord {
	p.Helper()
	r, err := p.Runs.Run(p.Context(), id)
	if err != nil {
		p.Fatalf("run %s: %v", id, err)
	}
	return r
}

func (p *probe) wantStatus(id string, want model.Status) store.RunRecord {
	p.Helper()
	r := p.run(id)
	if r.Status != want {
		p.Fatalf("run %s: want status %s, have %s", id, want, r.Status)
	}
	return r
}

func (p *probe) entity(key string) store.EntityRecord {
	p.Helper()
	e, err := p.Runs.Entity(p.Context(), "orders", key)
	if err != nil {
		p.Fatalf("entity %s: %v", key, err)
	}
	return e
}

// wantErr compares an error with the one in the contract.
func (p *probe) wantErr(what string, have, want error) {
	p.Helper()
	if !errors.Is(have, want) {
		p.Fatalf("%s: want error %q, have %v", what, want, have)
	}
}

// equal compares values, with times in the precision of stores.
func (p *probe) equal(what string, have, want any) {
	p.Helper()
	if d := cmp.Diff(want, have, cmpopts.EquateEmpty(), cmpopts.EquateApproxTime(0)); d != "" {
		p.Fatalf("%s: -want +have\n%s", what, d)
	}
}

// wantJSON compares an object of a store, whose names may have any order.
func (p *probe) wantJSON(what string, have []byte, want map[string]any) {
	p.Helper()
	e, err := store.DecodeEvent(fmt.Appendf(nil, `{"id":"x","type":"x","payload":%s}`, have))
	if err != nil {
		p.Fatalf("%s: %v in %s", what, err, have)
	}
	p.equal(what, e.Payload, any(want))
}

// eventually asks until the answer is yes.
func (p *probe) eventually(what string, done func() bool) {
	p.Helper()
	patience.Until(p, what, done)
}

// long returns a text that no database stores inline.
func long(n int) string { return strings.Repeat("shared state ", n/13+1)[:n] }
