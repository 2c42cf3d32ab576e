package conformance

import (
	"errors"
	"fmt"
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

// ending gives an event the end of its run, which begins with the definition "bundle".
func (p *probe) ending(in model.Intake) model.Intake {
	c := change(store.Claimed{ID: in.ID, Pipeline: in.Pipeline, Flow: in.Flow, Key: in.Key}, model.Succeeded)
	c.Alone = !in.Ordered
	in.Bundle, in.End = c.Bundle, &model.Ending{Change: c, Began: time.Now().UTC().Truncate(time.Microsecond)}
	return in
}

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

// change makes the next change of a claimed run.
func change(c store.Claimed, s model.Status) model.Change {
	return model.Change{
		Run: c.ID, Version: c.Version, Status: s, Bundle: "bundle", Pipeline: c.Pipeline, Flow: c.Flow, Key: c.Key,
		Checkpoint: fmt.Appendf(nil, `{"version":%d}`, c.Version),
	}
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

func (p *probe) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// eventually asks until the answer is yes.
func (p *probe) eventually(what string, done func() bool) {
	p.Helper()
	patience.Until(p, what, done)
}

// long returns a text that no database stores inline.
func long(n int) string { return strings.Repeat("shared state ", n/13+1)[:n] }
