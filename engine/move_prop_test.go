package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"procaas/engine/checkpoint"
	"procaas/engine/core"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/records"
	"procaas/engine/store"
)

// A sketch is a handler of a random definition.
type sketch struct {
	id       string
	critical bool
	set      bool   // the state, without a call
	reads    string // a name of the shared state
	source   string // the handler whose response it reads; empty for none
	writes   string // a name of the shared state
	instead  string // the name that its fallback writes; empty for none
}

// drawSketch makes a handler that may read the responses of some others.
func drawSketch(t *rapid.T, id string, sources []string) sketch {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	h := sketch{
		id: id, critical: rapid.IntRange(0, 2).Draw(t, "critical") > 0, set: rapid.IntRange(0, 4).Draw(t, "set") == 0,
		reads: name.Draw(t, "reads"), writes: name.Draw(t, "writes"),
	}
	if len(sources) > 0 && rapid.IntRange(0, 2).Draw(t, "source") == 0 {
		h.source = rapid.SampledFrom(sources).Draw(t, "of")
	}
	if !h.critical && rapid.Bool().Draw(t, "fallback") {
		h.instead = name.Draw(t, "instead")
	}
	return h
}

// callers lists the handlers whose response does not depend on what they write.
func callers(stage []sketch) (ids []string) {
	for _, h := range stage {
		if !h.set {
			ids = append(ids, h.id)
		}
	}
	return ids
}

// change makes another version of a handler.
func (h sketch) change(t *rapid.T, sources []string) sketch {
	now := drawSketch(t, h.id, sources)
	switch rapid.IntRange(0, 6).Draw(t, "change") {
	case 0:
		h.critical, h.instead = now.critical, now.instead
	case 1:
		h.reads = now.reads
	case 2:
		h.source = now.source
	case 3:
		h.writes = now.writes
	}
	return h
}

// drawStages makes the stages of a definition; each handler may read the responses
// of those of earlier stages.
func drawStages(t *rapid.T) (stages [][]sketch) {
	var sources []string
	for i := range rapid.IntRange(1, 3).Draw(t, "stages") {
		var stage []sketch
		for j := range rapid.IntRange(1, 4).Draw(t, "handlers") {
			stage = append(stage, drawSketch(t, fmt.Sprintf("h%d%d", i, j), sources))
		}
		sources = append(sources, callers(stage)...)
		stages = append(stages, stage)
	}
	return stages
}

// changeStages makes a newer definition of one: handlers are changed, removed and
// added, and so are stages at the end.
func changeStages(t *rapid.T, old [][]sketch) (stages [][]sketch) {
	var sources []string
	for i, was := range old {
		var stage []sketch
		for j, h := range was {
			if rapid.IntRange(0, 7).Draw(t, "add") == 0 {
				stage = append(stage, drawSketch(t, fmt.Sprintf("n%d%d", i, j), sources))
			}
			if rapid.IntRange(0, 11).Draw(t, "remove") > 0 {
				if h.source != "" && !slices.Contains(sources, h.source) {
					h.source = ""
				}
				stage = append(stage, h.change(t, sources))
			}
		}
		sources = append(sources, callers(stage)...)
		if len(stage) > 0 {
			stages = append(stages, stage)
		}
	}
	if len(stages) == 0 || rapid.IntRange(0, 2).Draw(t, "more") == 0 {
		stages = append(stages, []sketch{drawSketch(t, "last", sources)})
	}
	return stages
}

// yamlOf writes a definition.
func yamlOf(stages [][]sketch) string {
	var b strings.Builder
	b.WriteString("pipelines:\n- id: p\n  shared-state: {a: 1, b: 2, c: 3, d: 4}\n  stages:\n")
	for i, stage := range stages {
		fmt.Fprintf(&b, "  - id: s%d\n    handlers:\n", i)
		for _, h := range stage {
			fmt.Fprintf(&b, "    - id: %s\n      critical: %v\n", h.id, h.critical)
			if h.set {
				fmt.Fprintf(&b, "      set: {%s: %d}\n", h.writes, len(h.id)+100*i)
			} else {
				fmt.Fprintf(&b, "      request: {x: !$ shared-state.%s", h.reads)
				if h.source != "" {
					fmt.Fprintf(&b, ", y: !$ \"sources.%s.response ?? 0\"", h.source)
				}
				fmt.Fprintf(&b, "}\n      retry: {attempts: 1}\n      result: {%s: !$ sources.%s.response}\n", h.writes, h.id)
			}
			if h.instead != "" {
				fmt.Fprintf(&b, "      fallback: {result: {%s: 77}}\n", h.instead)
			}
		}
	}
	return b.String()
}

// A mover drives one run, and may move it to another plan at any save.
type mover struct {
	t     *rapid.T
	plan  *planner.Plan
	to    *planner.Plan // nil: it stays
	fails map[string]bool
	heals bool // what is critical fails only before the move

	start   core.Start
	run     *core.Run
	saved   model.Change
	decided map[string]bool
	bodies  map[string]string // of calls, by path; since the move
	moved   bool
	refused bool // it did not fit
}

func newMover(t *rapid.T, plan, to *planner.Plan, fails map[string]bool) *mover {
	return &mover{
		t: t, plan: plan, to: to, fails: fails, decided: map[string]bool{}, bodies: map[string]string{},
		start: core.Start{ID: "r1", Flow: "p", Event: model.Event{ID: "e1", Type: "p"}},
	}
}

func (m *mover) live() core.Live { return core.Live{Now: noon} }

// drive goes to the end, or to the move that does not fit.
func (m *mover) drive() checkpoint.RunView {
	m.run = core.Begin(m.plan, m.start)
	var calls []core.Attempt
	for range 1000 {
		calls = append(calls, m.run.Ready(m.live())...)
		m.save()
		switch {
		case m.to != nil && !m.moved && (m.saved.Status.Ended() || rapid.IntRange(0, 4).Draw(m.t, "move") == 0):
			if !m.move() {
				return checkpoint.RunView{}
			}
			calls = nil // a crash, or those calls have ended
		case m.saved.Status == model.Failed && m.moved: // it was about to, when it was moved
			m.redrive(m.view())
		case m.saved.Status.Ended():
			return m.view()
		case len(calls) > 0:
			i := rapid.IntRange(0, len(calls)-1).Draw(m.t, "ends")
			m.end(calls[i])
			calls = slices.Delete(calls, i, i+1)
		}
	}
	m.t.Fatal("the run does not end")
	panic("unreachable")
}

func (m *mover) view() checkpoint.RunView {
	return records.View(store.RunRecord{
		ID: "r1", Flow: "p", Pipeline: "p", Status: m.saved.Status, Checkpoint: m.saved.Checkpoint,
		Generation: m.start.Generation, FailedPath: m.saved.FailedPath, Error: m.saved.Error,
	})
}

func (m *mover) save() {
	if m.run.Dirty() {
		m.saved = m.run.Change()
	}
	for _, h := range m.view().Handlers {
		if h.Finished != nil {
			m.decided[h.Path] = true
		}
	}
}

// move continues by the other plan, as after a retry when the run has failed.
func (m *mover) move() bool {
	v := m.view()
	if v.Status == model.Succeeded {
		m.refused = true
		return false
	}
	if err := core.Fits(m.plan, m.to, v); err != nil {
		m.refused = true
		return false
	}
	m.moved = true
	clear(m.bodies)
	if v.Status == model.Failed {
		m.redrive(v)
	} else {
		m.resume()
	}
	return true
}

// redrive is an operator's retry of the run that has been moved.
func (m *mover) redrive(v checkpoint.RunView) {
	m.start.Generation++
	for _, h := range v.Handlers {
		if s := m.to.Step(h.Path); h.Outcome == model.OutcomeFailed && s != nil && s.Handler.IsCritical() {
			delete(m.decided, h.Path) // it is what the retry is for
		}
	}
	m.resume()
}

func (m *mover) resume() {
	run, err := core.Resume(m.to, m.start, m.saved.Checkpoint)
	if err != nil {
		m.t.Fatalf("it fits, but does not resume: %v", err)
	}
	m.run = run
}

// end lets a call end: with a value of its path alone, or with an error.
func (m *mover) end(task core.Attempt) {
	path := task.Step.Path
	if m.decided[path] {
		m.t.Errorf("%s was called again, though its outcome was saved", path)
	}
	body, err := json.Marshal(task.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	m.bodies[path] = string(body)
	h := fnv.New32a()
	fmt.Fprint(h, path)
	o := core.Outcome{Result: model.Result{Response: int(h.Sum32() % 1000)}}
	if m.fails[path] && !(task.Step.Handler.IsCritical() && (m.moved || m.heals)) {
		o = core.Outcome{Err: model.Permanent(context.DeadlineExceeded)}
	}
	m.run.Finish(path, o, m.live())
}

// A run that fits another definition ends by it as one that began by it: the
// handlers to come get the same, and nothing that is decided runs again.
func TestRunThatFitsEndsAsIfItHadBegunByTheOtherDefinition(t *testing.T) {
	t.Parallel()
	moved, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		old := drawStages(t)
		now := changeStages(t, old)
		from, to := yamlOf(old), yamlOf(now)
		fails := map[string]bool{}
		for i, stage := range old {
			for _, h := range stage {
				fails[fmt.Sprintf("p/s%d/%s", i, h.id)] = rapid.IntRange(0, 4).Draw(t, "fails") == 0
			}
		}
		m := newMover(t, plan(t, from), plan(t, to), fails)
		have := m.drive()
		if m.refused {
			refused++
			return
		}
		moved++
		fresh := newMover(t, m.to, nil, fails)
		fresh.heals = true
		want := fresh.drive()
		if have.Status != model.Succeeded || want.Status != model.Succeeded {
			t.Fatalf("want both runs to succeed, have %s: %s and %s: %s", have.Status, have.Error, want.Status, want.Error)
		}
		for _, path := range slices.Sorted(maps.Keys(m.bodies)) {
			if m.bodies[path] != fresh.bodies[path] {
				t.Errorf("%s was called with %s, and with %s in a run that began by the definition\n%s\n%s",
					path, m.bodies[path], fresh.bodies[path], from, to)
			}
		}
	})
	t.Logf("%d moved, %d pinned", moved, refused)
	if moved < 10 || refused < 10 {
		t.Errorf("%d runs that were moved and %d that did not fit show little", moved, refused)
	}
}
