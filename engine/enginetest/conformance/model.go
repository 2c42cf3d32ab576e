package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"procaas/engine/model"
	"procaas/engine/store"
)

func checkModel(t *testing.T, open func(t *testing.T) store.Store) {
	p := newProbe(t, open(t))
	rounds := 0
	rapid.Check(t, func(t *rapid.T) {
		// All rounds share a store, so each has its own keys and cleans up, even if rapid
		// interrupts it.
		rounds++
		m := &storeModel{T: t, p: p, round: rounds, runs: map[string]*modelRun{}, state: map[string]string{}, node: p.join()}
		t.Cleanup(m.clean)
		t.Repeat(map[string]func(*rapid.T){
			"accept": m.accept, "again": m.again, "claim": m.claim, "commit": m.commit, "retry": m.retry,
			"cancel": m.cancel, "leave": m.leave, "stale": m.stale, "": m.check,
		})
	})
}

// A storeModel is the simplest model of a store: a list of runs in the order of acceptance.
type storeModel struct {
	*rapid.T
	p     *probe
	round int
	node  *member
	runs  map[string]*modelRun
	list  []*modelRun
	state map[string]string // by key
}

type modelRun struct {
	in         model.Intake
	status     model.Status
	place      int  // by acceptance
	turn       bool // it has the turn of its key
	deferred   bool
	begun      bool // has a bundle
	cancel     bool
	version    int64
	generation int
}

// settle gives each key's turn to the first run that may have it. A run keeps its turn, unless it
// has not begun and an earlier one comes.
func (m *storeModel) settle() {
	holder := map[string]*modelRun{}
	for _, r := range m.list {
		r.turn = r.turn && r.mayHold()
		if r.turn {
			holder[r.in.Key] = r
		}
	}
	for _, r := range m.list {
		if r.turn || !r.in.Ordered || r.status != model.Waiting || r.deferred {
			continue
		}
		have := holder[r.in.Key]
		if have == nil || have.status == model.Waiting && !have.begun && have.place > r.place {
			if have != nil {
				have.turn = false
			}
			r.turn, holder[r.in.Key] = true, r
		}
	}
}

// mayHold reports whether a run with its key's turn keeps it.
func (r *modelRun) mayHold() bool {
	switch r.status {
	case model.Waiting:
		return !r.deferred
	case model.Failed:
		return r.in.Block
	default:
		return !r.status.Ended()
	}
}

// ready lists what a claim of everything must return, in order.
func (m *storeModel) ready() []string {
	m.settle()
	var heads []*modelRun
	for _, r := range m.list {
		if r.status == model.Waiting && (r.turn || !r.in.Ordered) {
			heads = append(heads, r)
		}
	}
	slices.SortStableFunc(heads, func(a, b *modelRun) int {
		return cmp.Compare(b.in.Event.Priority, a.in.Event.Priority)
	})
	ids := []string{}
	for _, r := range heads {
		ids = append(ids, r.in.ID)
	}
	return ids
}

func (m *storeModel) accept(t *rapid.T) {
	var batch []model.Intake
	for range rapid.IntRange(1, 4).Draw(t, "batch") {
		in := m.p.event(fmt.Sprintf("%d-%c", m.round, 'a'+rapid.IntRange(0, 2).Draw(t, "key")))
		in.Pipeline = m.pipeline()
		in.Block = rapid.Bool().Draw(t, "block")
		in.Ordered = rapid.IntRange(0, 4).Draw(t, "ordered") > 0
		in.Event.Priority = rapid.IntRange(0, 1).Draw(t, "priority")
		batch = append(batch, in)
		r := &modelRun{in: in, status: model.Waiting, place: len(m.list)}
		m.runs[in.ID] = r
		m.list = append(m.list, r)
	}
	m.p.accept(batch...)
}

func (m *storeModel) again(t *rapid.T) {
	r := m.pick(t, "again", func(*modelRun) bool { return true })
	if a := m.p.acceptFor(0, r.in)[0]; !a.Duplicate || a.Run != r.in.ID {
		t.Fatalf("repetition of %s: %+v", r.in.ID, a)
	}
}

func (m *storeModel) claim(t *rapid.T) {
	want := m.ready()
	want = want[:min(len(want), rapid.IntRange(1, 5).Draw(t, "limit"))]
	if len(want) == 0 {
		t.Skip("nothing is ready")
	}
	have := m.node.claim(len(want))
	if !slices.Equal(idsOf(have), want) {
		t.Fatalf("claim: want %v, have %v", want, idsOf(have))
	}
	for _, c := range have {
		r := m.runs[c.ID]
		r.status, r.deferred = model.Running, false
		if c.Version != r.version || c.Generation != r.generation || c.Cancelled != r.cancel || c.Ordered && c.Entity.State != m.state[c.Key] {
			t.Fatalf("claimed %+v, want %+v in state %q", c, r, m.state[c.Key])
		}
	}
}

func (m *storeModel) commit(t *rapid.T) {
	r := m.pick(t, "run", func(r *modelRun) bool { return r.status == model.Running })
	c := model.Change{Run: r.in.ID, Flow: r.in.Flow, Key: r.in.Key, Version: r.version, Pipeline: m.pipeline()}
	c.Status = rapid.SampledFrom([]model.Status{
		model.Running, model.Waiting, model.Failed, model.Succeeded,
		model.Succeeded, model.Cancelled, model.Ignored,
	}).Draw(t, "status")
	c.Defer = c.Status == model.Waiting && r.in.Ordered && rapid.Bool().Draw(t, "defer")
	if !c.Defer && rapid.Bool().Draw(t, "checkpoint") {
		c.Checkpoint, c.Bundle = []byte("{}"), "bundle"
	}
	c.State = rapid.SampledFrom([]string{"", "open", "closed"}).Draw(t, "state")
	final := c.Status == model.Succeeded || c.Status == model.Cancelled || c.Status == model.Ignored
	err := m.node.commitErrs(c)[0]
	if r.cancel && !final {
		m.p.wantErr("commit of a cancelled run", err, store.ErrCancelled)
		return
	}
	if err != nil {
		t.Fatalf("commit of %s as %s: %v", r.in.ID, c.Status, err)
	}
	r.status, r.deferred, r.begun = c.Status, c.Defer, c.Bundle != ""
	r.version++
	if c.Status == model.Succeeded && r.in.Ordered && c.State != "" && c.State != m.state[r.in.Key] {
		m.state[r.in.Key] = c.State
		for _, other := range m.list {
			if other.in.Key == r.in.Key && other.in.Ordered {
				other.deferred = false
			}
		}
	}
}

func (m *storeModel) stale(t *rapid.T) {
	r := m.pick(t, "run", func(r *modelRun) bool { return r.version > 0 })
	c := model.Change{Run: r.in.ID, Flow: r.in.Flow, Key: r.in.Key, Version: r.version - 1, Status: model.Succeeded}
	m.p.wantErr("old version", m.node.commitErrs(c)[0], store.ErrStale)
}

func (m *storeModel) retry(t *rapid.T) {
	r := m.pick(t, "run", func(r *modelRun) bool { return true })
	err := m.p.Runs.Retry(m.p.Context(), r.in.ID, steerer)
	if r.status == model.Ignored {
		r.begun = false
		r.deferred = false
		r.in.Block = false
		r.cancel = false
	} else if r.status != model.Failed {
		m.p.wantErr("retry of a run that is "+string(r.status), err, store.ErrConflict)
		return
	}
	m.p.must(err)
	r.status = model.Waiting
	r.generation++
}

func (m *storeModel) cancel(t *rapid.T) {
	r := m.pick(t, "run", func(r *modelRun) bool { return true })
	err := m.p.Runs.Cancel(m.p.Context(), r.in.ID, store.Actor{Name: "ann", Reason: "model"}, store.Tell{})
	switch {
	case r.status.Ended() && r.status != model.Failed:
		m.p.wantErr("cancel of a run that is "+string(r.status), err, store.ErrConflict)
		return
	case r.status == model.Running:
		r.cancel = true
	default:
		r.status = model.Cancelled
	}
	m.p.must(err)
}

func (m *storeModel) leave(t *rapid.T) {
	m.node.leave(nil)
	m.node = m.p.join()
	for _, r := range m.list {
		if r.status == model.Running {
			r.status = model.Waiting
		}
	}
}

// pipeline is the pipeline of this round's runs.
func (m *storeModel) pipeline() string { return fmt.Sprintf("round-%d", m.round) }

// check runs after every step and compares all runs.
func (m *storeModel) check(t *rapid.T) {
	m.settle()
	runs, next, err := m.p.Runs.List(m.p.Context(), store.RunFilter{Pipeline: m.pipeline(), Limit: 1000})
	if err != nil || next != "" || len(runs) != len(m.list) {
		t.Fatalf("want %d runs, have %d, %q, %v", len(m.list), len(runs), next, err)
	}
	slices.Reverse(runs)
	for i, want := range m.list {
		have := runs[i]
		if have.ID != want.in.ID || have.Status != want.status || have.Version != want.version || have.Generation != want.generation {
			t.Fatalf("want %+v, have run %s with status %s, version %d, generation %d",
				want, have.ID, have.Status, have.Version, have.Generation)
		}
	}
}

// clean ends all runs, so that the next round finds nothing ready.
func (m *storeModel) clean() {
	m.node.leave(nil)
	for _, r := range m.list {
		// It does not matter here whether that is allowed.
		if err := m.p.Runs.Cancel(m.p.Context(), r.in.ID, store.Actor{Name: "ann", Reason: "end of round"}, store.Tell{}); err != nil &&
			!errors.Is(err, store.ErrConflict) {
			m.p.Error(err)
		}
	}
}

func (m *storeModel) pick(t *rapid.T, label string, fits func(*modelRun) bool) *modelRun {
	var some []*modelRun
	for _, r := range m.list {
		if fits(r) {
			some = append(some, r)
		}
	}
	if len(some) == 0 {
		t.Skip("no run fits")
	}
	return some[rapid.IntRange(0, len(some)-1).Draw(t, label)]
}
