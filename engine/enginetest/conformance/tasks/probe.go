package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"procaas/engine/store"

	"pgregory.net/rapid"
)

// This file draws changes of tasks for the property test of stores against the model.

// A taskProbe makes the same changes to a store and its model.
type taskProbe struct {
	*rapid.T
	s    *store.TaskStore
	m    *taskModel
	refs []store.TaskRef // all that were ever handed out
	seq  int
}

func checkTaskModel(t *testing.T, s *store.TaskStore) {
	rapid.Check(t, func(t *rapid.T) {
		p := &taskProbe{T: t, s: s, m: &taskModel{tasks: map[int64]*modelTask{}}}
		t.Cleanup(p.clean)
		t.Repeat(map[string]func(*rapid.T){
			"put": p.put, "claim": p.claim, "report": p.report, "cancel": p.cancel, "reclaim": p.reclaim, "raise": p.raise, "": p.check,
		})
	})
}

// clean ends all tasks of a round.
func (p *taskProbe) clean() {
	ctx := context.Background()
	if _, err := p.s.Maintenance.ReclaimTasks(ctx, 1000, 1<<30); err != nil {
		p.Fatal(err)
	}
	var r store.TaskReport
	tasks, err := p.s.Admin.PeekTasks(ctx, store.TaskFilter{})
	if err != nil {
		p.Fatal(err)
	}
	for _, t := range tasks {
		if t.State == store.TaskRunning || t.State == store.TaskStarting {
			r.Completed = append(r.Completed, t.Ref())
		}
	}
	for r.Len() > 0 { // those that follow are free
		if _, err := p.s.Work.ReportTasks(ctx, r); err != nil {
			p.Fatal(err)
		}
		r = store.TaskReport{}
	}
	if _, err := p.s.Queue.CancelTasks(ctx, store.TaskFilter{}); err != nil {
		p.Fatal(err)
	}
}

var taskTypes = []string{"plain", "keyed", "capped"}

func drawSpec(t *rapid.T, seq int) store.TaskSpec {
	s := store.TaskSpec{
		Type:      rapid.SampledFrom(taskTypes).Draw(t, "type"),
		Payload:   json.RawMessage(fmt.Sprintf("[%d]", seq)),
		Key:       rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "key"),
		Priority:  rapid.IntRange(-1, 1).Draw(t, "priority"),
		Tolerance: time.Duration(rapid.IntRange(0, 2).Draw(t, "tolerance")) * time.Hour,
		Unique:    rapid.SampledFrom([]string{"", "u", "v"}).Draw(t, "unique"),
	}
	if rapid.IntRange(0, 4).Draw(t, "later") == 0 {
		s.Delay = time.Hour
	}
	if s.Unique != "" {
		s.OnDuplicate = rapid.SampledFrom(store.Duplicates()).Draw(t, "on-duplicate")
		s.Merge = joinPayloads
	}
	return s
}

func (p *taskProbe) put(t *rapid.T) {
	specs := make([]store.TaskSpec, rapid.IntRange(1, 5).Draw(t, "n"))
	for i := range specs {
		p.seq++
		specs[i] = drawSpec(t, p.seq)
	}
	out, err := p.s.Queue.PutTasks(context.Background(), specs)
	if err != nil {
		t.Fatal(err)
	}
	p.m.now++
	for i, one := range out {
		if have, want := one.Outcome, p.m.put(specs[i], one.ID); have != want {
			t.Fatalf("put %d of %+v: have %s, want %s", i, specs[i], have, want)
		}
	}
}

func (p *taskProbe) claim(t *rapid.T) {
	c := store.TaskClaim{Worker: "w", Prefetch: rapid.Bool().Draw(t, "prefetch")}
	if rapid.IntRange(0, 3).Draw(t, "short") > 0 {
		c.Lease = time.Hour
	}
	for _, kind := range taskTypes {
		w := store.TaskWant{Type: kind, Limit: rapid.IntRange(0, 4).Draw(t, "limit")}
		switch kind {
		case "keyed":
			w.MaxPerKey = 1
		case "capped":
			w.MaxTaken = 2
		}
		c.Types = append(c.Types, w)
	}
	if rapid.Bool().Draw(t, "without keyed") {
		c.Types = slices.Delete(c.Types, 1, 2)
	}
	c.Limit = rapid.IntRange(0, 5).Draw(t, "total")
	if _, _, err := p.s.Maintenance.PromoteTasks(context.Background(), 1000); err != nil {
		t.Fatal(err)
	}
	have, err := p.s.Work.ClaimTasks(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	want := p.m.claim(c)
	if len(have) != len(want) {
		t.Fatalf("claim %+v: have %d tasks %+v, want %d", c, len(have), have, len(want))
	}
	for i, one := range have {
		if one.Epoch == want[i].epoch {
			t.Fatalf("task %d was taken again with epoch %d, with which it was taken before", one.ID, one.Epoch)
		}
		want[i].epoch = one.Epoch
		p.sameTask(t, one, want[i])
		p.refs = append(p.refs, one.Ref())
	}
}

func (p *taskProbe) sameTask(t *rapid.T, have store.QueuedTask, want *modelTask) {
	if have.ID != want.id || have.State != want.state || have.Epoch != want.epoch || have.Failures != want.failures ||
		have.Lost != want.lost || have.Type != want.spec.Type || have.Key != want.spec.Key || have.Unique != want.spec.Unique ||
		have.Priority != want.spec.Priority || string(have.Payload) != string(want.spec.Payload) {
		t.Fatalf("have %+v, want %+v", have, *want)
	}
}

func (p *taskProbe) report(t *rapid.T) {
	if len(p.refs) == 0 {
		t.Skip("nothing was taken yet")
	}
	refs := rapid.SliceOfNDistinct(rapid.SampledFrom(p.refs), 1, 4, func(r store.TaskRef) int64 { return r.ID }).Draw(t, "refs")
	p.m.now++
	var (
		r    store.TaskReport
		want []store.TaskRef
		next []*store.TaskSpec
	)
	for _, ref := range refs {
		held := p.m.held(ref)
		if held == nil {
			want = append(want, ref)
		}
		delay := time.Duration(rapid.IntRange(0, 1).Draw(t, "delay")) * time.Hour
		switch rapid.IntRange(0, 3).Draw(t, "outcome") {
		case 0, 1:
			r.Completed = append(r.Completed, ref)
			if held != nil {
				next = append(next, p.m.end(held))
			}
		case 2:
			retry := rapid.Bool().Draw(t, "retry")
			r.Failed = append(r.Failed, store.TaskFailure{TaskRef: ref, Error: "no", Retry: retry, Delay: delay})
			if held != nil && retry {
				p.m.giveBack(held, delay, true)
			} else if held != nil {
				next = append(next, p.m.end(held))
				p.m.dead++
			}
		case 3:
			r.Snoozed = append(r.Snoozed, store.TaskSnooze{TaskRef: ref, Delay: delay})
			if held != nil {
				p.m.giveBack(held, delay, false)
			}
		}
	}
	lost, err := p.s.Work.ReportTasks(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	byRef := func(a, b store.TaskRef) int { return int(a.ID - b.ID) }
	slices.SortFunc(lost, byRef)
	slices.SortFunc(want, byRef)
	if !slices.Equal(lost, want) {
		t.Fatalf("report %+v: lost %v, want %v", r, lost, want)
	}
	for _, spec := range next {
		p.follow(t, spec)
	}
}

// follow reads the id of a task that follows another one.
func (p *taskProbe) follow(t *rapid.T, spec *store.TaskSpec) {
	if spec == nil {
		return
	}
	found, err := p.s.Admin.PeekTasks(context.Background(), store.TaskFilter{Type: spec.Type, Unique: spec.Unique})
	if err != nil || len(found) != 1 {
		t.Fatalf("want one task to follow, have %+v, %v", found, err)
	}
	p.m.put(*spec, found[0].ID)
}

func (p *taskProbe) cancel(t *rapid.T) {
	f := store.TaskFilter{
		Type: rapid.SampledFrom(taskTypes).Draw(t, "type"), Key: rapid.SampledFrom([]string{"", "a"}).Draw(t, "key"),
		Unique: rapid.SampledFrom([]string{"", "u"}).Draw(t, "unique"),
	}
	n, err := p.s.Queue.CancelTasks(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for id, one := range p.m.tasks {
		if !one.taken() && one.spec.Type == f.Type && (f.Key == "" || one.spec.Key == f.Key) && (f.Unique == "" || one.spec.Unique == f.Unique) {
			delete(p.m.tasks, id)
			want++
		}
	}
	if n != want {
		t.Fatalf("cancel %+v: have %d, want %d", f, n, want)
	}
}

func (p *taskProbe) reclaim(t *rapid.T) {
	n, err := p.s.Maintenance.ReclaimTasks(context.Background(), 1000, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if want := p.m.reclaim(); n != want {
		t.Fatalf("reclaim: have %d, want %d", n, want)
	}
}

// raise raises tasks without tolerance. In the model, all others tolerate more than a round takes.
func (p *taskProbe) raise(t *rapid.T) {
	kind := rapid.SampledFrom([]string{"plain", "capped"}).Draw(t, "type")
	n, err := p.s.Maintenance.RaiseTasks(context.Background(), kind, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if want := p.m.raise(kind); n != want {
		t.Fatalf("raise %s: have %d, want %d", kind, n, want)
	}
}

// check compares the whole queue.
func (p *taskProbe) check(t *rapid.T) {
	have, err := p.s.Admin.PeekTasks(context.Background(), store.TaskFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if len(have) != len(p.m.tasks) {
		t.Fatalf("have %d tasks, want %d", len(have), len(p.m.tasks))
	}
	for _, one := range have {
		want := p.m.tasks[one.ID]
		if want == nil {
			t.Fatalf("have %+v, want none", one)
		}
		if one.State == store.TaskWaiting && want.state == store.TaskReady {
			one.State = store.TaskReady // put aside
		}
		p.sameTask(t, one, want)
	}
}
