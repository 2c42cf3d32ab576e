package engine_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"procaas/engine/core"
	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/records"
	"procaas/engine/store"
)

// schedules returns how many random schedules are played: five for each example of the other
// properties, of which make test-long ONLY=properties takes thirty times as many.
func schedules() int {
	return 5 * flag.Lookup("rapid.checks").Value.(flag.Getter).Get().(int)
}

// schedulePipeline has parallel handlers, one that may wait, and one for each way
// of dealing with a call whose end is not known.
const schedulePipeline = `
pipelines:
- id: p
  shared-state: {a: 0, b: 0, c: 0, sum: 0}
  stages:
  - id: s
    handlers:
    - {id: a, request: {}, result: {a: !$ sources.a.response}}
    - {id: b, request: {}, result: {b: !$ sources.b.response}, on-unknown: park}
    - {id: slow, request: {a: !$ shared-state.a}, result: {a: !$ shared-state.a + 1}}
  - id: t
    handlers:
    - id: c
      request: {}
      result: {c: !$ sources.c.response}
      on-unknown: {verify: {request: {}, done: !$ sources.c.status == 200}}
  - id: u
    handlers:
    - {id: last, request: {}, result: {sum: !$ shared-state.a + shared-state.b + shared-state.c}}
`

// TestAnyScheduleKeepsThePromises plays random schedules of several nodes over a
// store: events come, nodes claim, call, die, and are taken for dead while they
// go on. Each history is held against the promises.
func TestAnyScheduleKeepsThePromises(t *testing.T) {
	t.Parallel()
	p := plan(t, schedulePipeline)
	faults, held := 0, 0
	n := schedules()
	for seed := range uint64(n) {
		s := &schedule{t: t, plan: p, rand: rand.New(rand.NewPCG(seed, 0)), now: noon}
		s.play()
		for _, problem := range s.history.Check() {
			t.Errorf("seed %d: %s", seed, problem)
		}
		if t.Failed() {
			return
		}
		faults, held = faults+s.faults, held+s.held
	}
	if faults < n || held < n/20 {
		t.Errorf("%d faults and %d runs that waited for an operator show little", faults, held)
	}
}

// A schedule is a store as simple as can be, and nodes on it, in one thread.
type schedule struct {
	t       *testing.T
	plan    *planner.Plan
	rand    *rand.Rand
	now     time.Time
	history enginetest.History
	runs    []*scheduledRun // by acceptance
	nodes   []*scheduledNode
	faults  int
	held    int
}

// A scheduledRun is a row of the store.
type scheduledRun struct {
	id, key    string
	owner      *scheduledNode
	version    int
	generation int
	status     model.Status
	due        time.Time
	checkpoint []byte
	decided    map[string]bool
	sure       map[string]bool // by handler that was called: what became of it may be known
}

// A scheduledNode holds runs, as far as it knows.
type scheduledNode struct {
	fenced bool
	jobs   []*scheduledJob
}

// A scheduledJob is a run in the hands of a node.
type scheduledJob struct {
	row     *scheduledRun
	version int
	run     *core.Run
	calls   []core.Attempt
}

func (s *schedule) play() {
	s.nodes = []*scheduledNode{{}, {}, {}}
	for step := range 5000 {
		node := s.nodes[s.rand.IntN(len(s.nodes))]
		switch n := s.rand.IntN(100); {
		case n < 10 && step < 60:
			s.accept()
		case n < 14 && step < 200:
			s.kill(node)
		case n < 18 && step < 200:
			s.suspect(node)
		case n < 40:
			s.claim(node)
		case len(node.jobs) > 0:
			s.end(node, node.jobs[s.rand.IntN(len(node.jobs))])
		}
		if step > 200 && !slices.ContainsFunc(s.runs, func(r *scheduledRun) bool { return !r.status.Ended() }) {
			return
		}
	}
}

func (s *schedule) accept() {
	r := &scheduledRun{
		id: fmt.Sprintf("r%d", len(s.runs)), key: fmt.Sprintf("k%d", s.rand.IntN(3)), status: model.Waiting,
		decided: map[string]bool{}, sure: map[string]bool{},
	}
	s.runs = append(s.runs, r)
	s.history.Accepted(r.id, r.key)
}

// release takes the runs of a node from it, as the store does.
func (s *schedule) release(node *scheduledNode) {
	s.faults++
	s.history.Fault()
	node.fenced = true
	for _, r := range s.runs {
		if r.owner == node {
			r.owner, r.status = nil, model.Waiting
		}
	}
}

// kill ends a node; another one starts.
func (s *schedule) kill(node *scheduledNode) {
	s.release(node)
	s.nodes[slices.Index(s.nodes, node)] = &scheduledNode{}
}

// suspect takes a node for dead that goes on.
func (s *schedule) suspect(node *scheduledNode) { s.release(node) }

// claim assigns the first run that may go to a node. What waits for its time or for an
// operator is helped on.
func (s *schedule) claim(node *scheduledNode) {
	if node.fenced {
		s.nodes[slices.Index(s.nodes, node)] = &scheduledNode{} // joins anew, without its runs
		return
	}
	busy := map[string]bool{}
	for _, r := range s.runs {
		if r.status.Ended() || busy[r.key] {
			continue
		}
		busy[r.key] = true
		if r.owner != nil || s.rand.IntN(2) == 0 {
			continue
		}
		if r.status == model.Parked && r.due.IsZero() {
			s.held++
			r.generation++ // the operator has looked, and retries
			r.sure["b"] = true
		} else if r.due.After(s.now) {
			s.now = r.due
		}
		r.owner, r.status, r.due = node, model.Running, time.Time{}
		run, err := core.Resume(s.plan, core.Start{ID: r.id, Event: model.Event{Type: "p"}, Generation: r.generation}, r.checkpoint)
		if err != nil {
			s.t.Fatal(err)
		}
		job := &scheduledJob{row: r, version: r.version, run: run}
		node.jobs = append(node.jobs, job)
		s.step(node, job)
		return
	}
}

// start notes a call. Handlers with an on-unknown are never called blindly.
func (s *schedule) start(r *scheduledRun, task core.Attempt) {
	if task.Verify {
		r.sure[task.Step.Handler.ID] = true
		return
	}
	s.history.Called(r.id, task.Ref(), task.Step.Stage, task.IdempotencyKey)
	id := task.Step.Handler.ID
	if sure, called := r.sure[id]; called && !sure && task.Step.Handler.OnUnknown != nil {
		s.t.Errorf("%s of run %s is called again, and nobody has found out what became of the call before", id, r.id)
	}
	r.sure[id] = false
}

// step asks a run what may start, saves and starts it, as the driver does: a save
// that is not needed may be left out.
func (s *schedule) step(node *scheduledNode, job *scheduledJob) {
	tasks := job.run.Ready(core.Live{Now: s.now})
	status := job.run.Status()
	if (status != model.Running || job.run.MustSave() || s.rand.IntN(2) == 0) && !s.commit(node, job) {
		node.jobs = nil // fenced: all that the node holds is stale
		return
	}
	if status != model.Running {
		node.jobs = slices.DeleteFunc(node.jobs, func(other *scheduledJob) bool { return other == job })
		return
	}
	for _, task := range tasks {
		s.start(job.row, task)
	}
	job.calls = append(job.calls, tasks...)
}

// commit writes a step, unless the node is fenced.
func (s *schedule) commit(node *scheduledNode, job *scheduledJob) bool {
	change, r := job.run.Change(), job.row
	if node.fenced {
		return false
	}
	if r.owner != node || r.version != job.version {
		s.t.Errorf("run %s has moved on although its node was not fenced", r.id)
		return false
	}
	r.version++
	job.version++
	r.checkpoint, r.status, r.due = change.Checkpoint, change.Status, change.Due
	for _, h := range records.View(store.RunRecord{Status: r.status, Checkpoint: r.checkpoint}).Handlers {
		if h.Finished != nil && !r.decided[h.Path] {
			r.decided[h.Path] = true
			s.history.Decided(r.id, h.Path)
		}
	}
	if change.Status != model.Running {
		r.owner = nil
	}
	if change.Status.Ended() {
		s.history.Ended(r.id)
		s.checkEnd(r)
	}
	return true
}

// checkEnd compares the end of a run with the only one that there is.
func (s *schedule) checkEnd(r *scheduledRun) {
	v := records.View(store.RunRecord{Status: r.status, Checkpoint: r.checkpoint})
	if r.status != model.Succeeded || v.SharedState["sum"] != 2+2+3 {
		s.t.Errorf("run %s is %s with %v", r.id, r.status, v.SharedState)
	}
}

// end lets a call of a job end, and goes on.
func (s *schedule) end(node *scheduledNode, job *scheduledJob) {
	if len(job.calls) == 0 {
		return
	}
	i := s.rand.IntN(len(job.calls))
	task := job.calls[i]
	job.calls = slices.Delete(job.calls, i, i+1)
	result := model.Result{Status: 200, Response: map[string]any{"a": 1, "b": 2, "c": 3}[task.Step.Handler.ID]}
	switch {
	case task.Verify && s.rand.IntN(2) == 0:
		result = model.Result{Status: 404}
	case task.Step.Handler.ID == "slow" && s.rand.IntN(2) == 0:
		result.Until = s.now.Add(time.Minute)
	}
	job.run.Finish(task.Ref(), core.Outcome{Result: result}, core.Live{Now: s.now})
	s.step(node, job)
}
