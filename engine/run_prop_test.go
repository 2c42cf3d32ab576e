package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"procaas/engine/checkpoint"
	"procaas/engine/core"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/records"
	"procaas/engine/store"
)

// A world is a random pipeline and how the services that it calls behave.
type world struct {
	yaml  string
	fails map[string]int // by path: so many attempts fail before one succeeds; 9 is more than are made
	off   map[string]bool
}

// drawWorld makes a pipeline whose handlers read, write, touch, fail and are
// skipped at random. All values are integers that depend on all that was read,
// so a wrong order shows.
func drawWorld(t *rapid.T) world {
	names := []string{"a", "b", "c", "d"}
	name := rapid.SampledFrom(names)
	w := world{fails: map[string]int{}, off: map[string]bool{}}
	var whole strings.Builder
	whole.WriteString("pipelines:\n- id: p\n  shared-state: {a: 1, b: 2, c: 3, d: 4}\n  stages:\n")
	for i := range rapid.IntRange(1, 3).Draw(t, "stages") {
		if rapid.IntRange(0, 4).Draw(t, "repeated") == 0 {
			w.drawLoop(t, &whole, i, name)
			continue
		}
		var handlers []string
		for j := range rapid.IntRange(1, 5).Draw(t, "handlers") {
			var b strings.Builder
			id := fmt.Sprintf("h%d%d", i, j)
			path := fmt.Sprintf("p/s%d/%s", i, id)
			critical := rapid.Bool().Draw(t, "critical")
			if critical {
				w.fails[path] = rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 0, 1, 2, 2, 1, 9}).Draw(t, "fails")
			} else {
				w.fails[path] = rapid.SampledFrom([]int{0, 1, 9, 9}).Draw(t, "fails")
				w.off[path] = rapid.IntRange(0, 5).Draw(t, "off") == 0
			}
			fmt.Fprintf(&b, "    - id: %s\n      critical: %v\n", id, critical)
			if rapid.IntRange(0, 3).Draw(t, "enabled") == 0 {
				fmt.Fprintf(&b, "      enabled: !$ shared-state.%s %% 3 != 0\n", name.Draw(t, "if"))
			}
			if rapid.IntRange(0, 4).Draw(t, "touches") == 0 {
				b.WriteString("      touches: money\n")
			}
			if rapid.IntRange(0, 4).Draw(t, "set") == 0 {
				fmt.Fprintf(&b, "      set: {%s: !$ \"(shared-state.%s + %d) %% 1000\"}\n", name.Draw(t, "to"), name.Draw(t, "from"), i*10+j)
				handlers = append(handlers, b.String())
				continue
			}
			response := fmt.Sprintf("sources.%s.response", id)
			if rapid.IntRange(0, 4).Draw(t, "call") == 0 {
				response = w.drawCall(t, &b, path, name)
				fmt.Fprintf(&b, "      result: {%s: !$ \"(%s + shared-state.%s) %% 1000\"}\n", name.Draw(t, "writes"), response, name.Draw(t, "adds"))
				drawOnError(t, &b, critical, name)
				handlers = append(handlers, b.String())
				continue
			}
			if rapid.IntRange(0, 3).Draw(t, "for-each") == 0 {
				response = w.drawForEach(t, &b, path, name)
			} else {
				fmt.Fprintf(&b, "      request: {x: !$ shared-state.%s}\n", name.Draw(t, "reads"))
				if rapid.IntRange(0, 3).Draw(t, "compensate") == 0 {
					fmt.Fprintf(&b, "      compensate: {request: {undo: %s}, retry: {attempts: 4, min-delay: 10ms}}\n", id)
					w.fails[path+"/compensate"] = rapid.IntRange(0, 3).Draw(t, "undo fails")
				}
			}
			b.WriteString("      retry: {attempts: 3, min-delay: 10ms}\n")
			fmt.Fprintf(&b, "      result: {%s: !$ \"(%s + shared-state.%s) %% 1000\"}\n", name.Draw(t, "writes"), response, name.Draw(t, "adds"))
			drawOnError(t, &b, critical, name)
			if !critical && rapid.IntRange(0, 3).Draw(t, "fallback") > 0 {
				fmt.Fprintf(&b, "      fallback: {result: {%s: !$ shared-state.%s + 7}}\n", name.Draw(t, "instead"), name.Draw(t, "of"))
			}
			handlers = append(handlers, b.String())
		}
		fmt.Fprintf(&whole, "  - id: s%d\n", i)
		drawStage(t, &whole, handlers, name)
	}
	w.yaml = whole.String() + calledPipeline
	w.off["q/s1/later"] = rapid.IntRange(0, 5).Draw(t, "off inside") == 0
	return w
}

// calledPipeline is what handlers of a world call: two handlers that need not wait for
// each other, one of which may fail, one that reads what they have set, and one that outlasts its stage.
const calledPipeline = `- id: q
  inputs: {x: {type: integer}, y: {type: integer, default: 1}}
  outputs: {n: !$ "(shared-state.a * 3 + shared-state.b * 5 + shared-state.c) % 1000"}
  shared-state: {a: 1, b: 2, c: 3, d: 4}
  stages:
  - id: s0
    handlers:
    - {id: aside, critical: false, detached: true, request: {x: !$ inputs.x}, retry: {attempts: 3, min-delay: 10ms},
       result: {d: !$ sources.aside.response}}
    - {id: one, request: {x: !$ inputs.x}, retry: {attempts: 3, min-delay: 10ms}, result: {a: !$ sources.one.response}}
    - {id: two, critical: false, request: {y: !$ inputs.y}, retry: {attempts: 3, min-delay: 10ms}, result: {b: !$ sources.two.response}}
  - id: s1
    handlers:
    - {id: later, critical: false, request: {a: !$ shared-state.a, b: !$ shared-state.b}, retry: {attempts: 2, min-delay: 10ms},
       result: {c: !$ sources.later.response}}
`

// drawCall calls a pipeline, perhaps for each item of a list. It returns a number that
// depends on all that it returns.
func (w world) drawCall(t *rapid.T, b *strings.Builder, path string, name *rapid.Generator[string]) string {
	source := "sources." + path[strings.LastIndex(path, "/")+1:] + ".response"
	refs := []string{path}
	with := "shared-state." + name.Draw(t, "reads")
	number := "(" + source + "?.n ?? 5)"
	if rapid.Bool().Draw(t, "call for each") {
		fmt.Fprintf(b, "      for-each: {items: [4, 5, 6], max-parallel: %d, on-failure: %s}\n",
			rapid.IntRange(1, 3).Draw(t, "parallel"), rapid.SampledFrom([]string{"fail", "continue"}).Draw(t, "on-failure"))
		refs = []string{path + "[0]", path + "[1]", path + "[2]"}
		with = "item + " + with
		number = "reduce(" + source + ", (#acc * 7 + (#?.n ?? 3)) % 1000, 0)"
	}
	fmt.Fprintf(b, "      call: {pipeline: q, with: {x: !$ \"%s\"}}\n", with)
	for _, ref := range refs {
		for _, inner := range []string{"s0/aside", "s0/one", "s0/two", "s1/later"} {
			w.fails[ref+">q/"+inner] = rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2, 9}).Draw(t, "inner fails")
		}
	}
	return number
}

// drawForEach repeats a call for items that fail each in its own way. It returns a number
// that depends on all responses and their order.
func (w world) drawForEach(t *rapid.T, b *strings.Builder, path string, name *rapid.Generator[string]) string {
	policy := rapid.SampledFrom([]string{"fail", "continue", "collect"}).Draw(t, "on-failure")
	fmt.Fprintf(b, "      for-each: {items: !$ \"[shared-state.%s, 1, 2, 3][:%d]\", max-parallel: %d, on-failure: %s}\n",
		name.Draw(t, "item"), rapid.IntRange(0, 4).Draw(t, "items"), rapid.IntRange(1, 3).Draw(t, "parallel"), policy)
	fmt.Fprintf(b, "      request: {x: !$ \"item + index * shared-state.%s\"}\n", name.Draw(t, "reads"))
	for i := range 4 {
		w.fails[fmt.Sprintf("%s[%d]", path, i)] = rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2, 9}).Draw(t, "item fails")
	}
	source := "sources." + path[strings.LastIndex(path, "/")+1:] + ".response"
	if policy == "collect" {
		source = "map(" + source + ", .response)"
	}
	return "reduce(" + source + ", (#acc * 7 + (# ?? 3)) % 1000, 0)"
}

// drawStage adds the handlers of a stage, some of them to branches, and perhaps a
// condition of the stage.
func drawStage(t *rapid.T, b *strings.Builder, handlers []string, name *rapid.Generator[string]) {
	if rapid.IntRange(0, 5).Draw(t, "stage enabled") == 0 {
		fmt.Fprintf(b, "    enabled: !$ shared-state.%s %% 2 != 0\n", name.Draw(t, "if"))
	}
	drawHandlers(t, b, handlers, name)
}

func drawHandlers(t *rapid.T, b *strings.Builder, handlers []string, name *rapid.Generator[string]) {
	always := len(handlers)
	if rapid.IntRange(0, 3).Draw(t, "choose") == 0 {
		always = rapid.IntRange(0, len(handlers)).Draw(t, "always")
	}
	b.WriteString("    handlers:\n")
	for _, h := range handlers[:always] {
		b.WriteString(h)
	}
	if always == len(handlers) {
		return
	}
	cut := rapid.IntRange(always, len(handlers)).Draw(t, "cut")
	b.WriteString("    choose:\n")
	for i, branch := range [][]string{handlers[always:cut], handlers[cut:]} {
		fmt.Fprintf(b, "    - when: !$ shared-state.%s %% 2 == %d\n      handlers:\n", name.Draw(t, "when"), i)
		for _, h := range branch {
			for line := range strings.Lines(h) {
				b.WriteString("  " + line)
			}
		}
	}
}

// drawLoop adds a stage that is repeated for each element of a list. Its handlers read
// what the run and the element know, and set what is the element's; what each of them
// leaves, and in which order, decides what the run gets.
func (w world) drawLoop(t *rapid.T, b *strings.Builder, i int, name *rapid.Generator[string]) {
	own := rapid.SampledFrom([]string{"x", "y", "z"})
	any := rapid.SampledFrom([]string{
		"shared-state.a", "shared-state.b", "shared-state.x", "shared-state.y", "shared-state.z", "item",
		"index",
	})
	fmt.Fprintf(b, "  - id: s%d\n", i)
	if rapid.IntRange(0, 5).Draw(t, "stage enabled") == 0 {
		fmt.Fprintf(b, "    enabled: !$ shared-state.%s %% 2 != 0\n", name.Draw(t, "if"))
	}
	fmt.Fprintf(b, "    for-each: {items: !$ \"[shared-state.%s, 1, 2, 3][:%d]\", max-parallel: %d, on-failure: %s}\n",
		name.Draw(t, "item"), rapid.IntRange(0, 4).Draw(t, "items"), rapid.IntRange(1, 3).Draw(t, "parallel"),
		rapid.SampledFrom([]string{"fail", "continue"}).Draw(t, "on-failure"))
	b.WriteString("    shared-state: {x: 1, y: 2, z: 3}\n")
	fmt.Fprintf(b, "    result: {%s: !$ \"reduce(sources.s%d.response, (#acc * 7 + (#?.x ?? 3) + (#?.y ?? 5) * 3 + (#?.z ?? 7) * "+
		"5) %% 1000, 0)\"}\n", name.Draw(t, "all"), i)
	var handlers []string
	for j := range rapid.IntRange(1, 4).Draw(t, "handlers") {
		var h strings.Builder
		id := fmt.Sprintf("h%d%d", i, j)
		path := fmt.Sprintf("p/s%d/%s", i, id)
		critical := rapid.Bool().Draw(t, "critical")
		w.off[path] = !critical && rapid.IntRange(0, 5).Draw(t, "off") == 0
		for k := range 4 {
			w.fails[fmt.Sprintf("p/s%d[%d]>%s", i, k, path)] = rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, 2, 9}).Draw(t, "element fails")
		}
		fmt.Fprintf(&h, "    - id: %s\n      critical: %v\n", id, critical)
		if rapid.IntRange(0, 3).Draw(t, "enabled") == 0 {
			fmt.Fprintf(&h, "      enabled: !$ %s %% 3 != 0\n", any.Draw(t, "if"))
		}
		if rapid.IntRange(0, 6).Draw(t, "touches") == 0 {
			h.WriteString("      touches: money\n")
		}
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			fmt.Fprintf(&h, "      set: {%s: !$ \"(%s + %d) %% 1000\"}\n", own.Draw(t, "to"), any.Draw(t, "from"), j)
		case 1:
			fmt.Fprintf(&h, "      call: {pipeline: q, with: {x: !$ \"%s\"}}\n      result: {%s: !$ \"(sources.%s.response?.n ?? 5) + %s\"}\n",
				any.Draw(t, "reads"), own.Draw(t, "writes"), id, any.Draw(t, "adds"))
		default:
			fmt.Fprintf(&h, "      request: {x: !$ %s}\n      retry: {attempts: 3, min-delay: 10ms}\n      result: {%s: !$ "+
				"\"(sources.%s.response + %s) %% 1000\"}\n",
				any.Draw(t, "reads"), own.Draw(t, "writes"), id, any.Draw(t, "adds"))
			drawOnError(t, &h, critical, own)
			if !critical && rapid.Bool().Draw(t, "fallback") {
				fmt.Fprintf(&h, "      fallback: {result: {%s: !$ %s + 7}}\n", own.Draw(t, "instead"), any.Draw(t, "of"))
			}
		}
		handlers = append(handlers, h.String())
	}
	drawHandlers(t, b, handlers, own)
}

// drawOnError adds rules that fit the error of all failing calls, or do not.
func drawOnError(t *rapid.T, b *strings.Builder, critical bool, name *rapid.Generator[string]) {
	switch rapid.IntRange(0, 6).Draw(t, "on-error") {
	case 0:
		fmt.Fprintf(b, "      on-error: [{on: 5xx, then: fail}, {on: timeout, then: continue, result: {%s: !$ error.attempts + "+
			"shared-state.%s}}]\n",
			name.Draw(t, "sets"), name.Draw(t, "from"))
	case 1:
		fmt.Fprintf(b, "      on-error: [{when: !$ shared-state.%s %% 2 == 0, then: continue, result: {%s: 5}}]\n",
			name.Draw(t, "looks"), name.Draw(t, "sets"))
	case 2:
		if !critical {
			b.WriteString("      on-error: [{then: skip}]\n")
		}
	}
}

// plan reads the world's pipeline; serial makes every handler wait for all that
// are declared before it.
func (w world) plan(t *rapid.T, serial bool) *planner.Plan {
	p := plan(t, w.yaml)
	for _, stage := range p.Stages {
		handlers := stage.Handlers()
		for i, s := range handlers {
			if !serial {
				break
			}
			s.Groups = [][]*planner.Step{handlers[:i]}
		}
	}
	return p
}

// A driver drives one run as the real one does, with a store that is a variable.
type driver struct {
	t      *rapid.T
	world  world
	plan   *planner.Plan
	called *planner.Plan // of the pipeline that handlers call
	start  core.Start
	pick   func(n int) int      // which of n calls ends next
	crash  func(at string) bool // now?
	now    time.Time
	run    *core.Run
	from   []byte            // the checkpoint that run has gone on from
	steps  []func(*core.Run) // what has happened to run since
	calls  []core.Attempt
	failed map[string]int  // ended with an error, by Task.Ref
	ended  map[string]bool // with success, by Task.Ref

	saved       model.Change
	savedFailed map[string]int
	savedEnded  map[string]bool
	decided     map[string]bool // outcome is saved
}

func newDriver(t *rapid.T, w world, serial bool) *driver {
	p := w.plan(t, serial)
	called, err := planner.New(p.Bundle, p.Bundle.Pipeline("q"), facts())
	if err != nil {
		t.Fatal(err)
	}
	return &driver{
		t: t, world: w, plan: p, called: called,
		start: core.Start{ID: "r1", Event: model.Event{ID: "e1", Type: "p"}},
		pick:  func(int) int { return 0 }, crash: func(string) bool { return false },
		now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), failed: map[string]int{}, ended: map[string]bool{}, decided: map[string]bool{},
	}
}

func (d *driver) live() core.Live {
	return core.Live{Now: d.now, Off: func(s *planner.Step) (string, bool) { return "off", d.world.off[s.Path] }}
}

// drive goes to the end.
func (d *driver) drive() checkpoint.RunView {
	d.take(nil)
	for range 10_000 {
		live := d.live()
		d.steps = append(d.steps, func(r *core.Run) { r.Ready(live) })
		tasks := d.run.Ready(live)
		if d.crash("before the save") {
			d.resume()
			continue
		}
		d.save()
		for _, task := range tasks {
			d.check(task)
		}
		d.calls = append(d.calls, tasks...)
		if d.crash("after the save") {
			d.resume()
			continue
		}
		switch {
		case d.saved.Status.Ended():
			d.checkSaved()
			return records.View(store.RunRecord{Status: d.saved.Status, Checkpoint: d.saved.Checkpoint})
		case len(d.calls) > 0:
			d.end(d.pick(len(d.calls)))
		case d.saved.Status != model.Parked || !d.saved.Due.After(d.now):
			d.t.Fatalf("nothing to do, but the run is %s until %s", d.saved.Status, d.saved.Due)
		default:
			d.now = d.saved.Due
		}
	}
	d.t.Fatal("the run does not end")
	panic("unreachable")
}

func (d *driver) save() {
	d.saved = d.run.Change()
	d.savedFailed, d.savedEnded = maps.Clone(d.failed), maps.Clone(d.ended)
	for _, h := range records.View(store.RunRecord{Status: d.saved.Status, Checkpoint: d.saved.Checkpoint}).Handlers {
		if h.Finished != nil {
			d.decided[strings.TrimPrefix(h.Within+">"+h.Path, ">")] = true
		}
		handler := d.plan.Bundle.Handler(h.Path) // nil for a repeated stage
		if handler != nil && handler.IsCritical() && h.Outcome == model.OutcomeSkipped && !byItsAuthor(h.Reason) {
			d.t.Errorf("%s is critical, but skipped: %s", h.Path, h.Reason)
		}
	}
}

// byItsAuthor reports whether a condition of the pipeline has left a handler out.
func byItsAuthor(reason string) bool {
	for _, begin := range []string{"enabled is false", "the stage is left out", "branch "} {
		if strings.HasPrefix(reason, begin) {
			return true
		}
	}
	return false
}

// check compares a task with the promises.
func (d *driver) check(task core.Attempt) {
	within, plan := task.Ref()[:strings.LastIndex(task.Ref(), ">")+1], d.plan
	if strings.HasPrefix(task.Step.Path, "q/") {
		plan = d.called
	}
	if d.decided[within+task.Step.Path] || d.savedEnded[task.Ref()] {
		d.t.Errorf("%s starts again, though its outcome was saved", task.Ref())
	}
	if strings.HasSuffix(task.Step.Path, "/compensate") {
		if len(d.calls) > 0 {
			d.t.Errorf("%s starts while calls are under way", task.Ref())
		}
		return
	}
	for _, stage := range plan.Stages[:task.Step.Stage] {
		for _, s := range stage.Steps {
			if !d.decided[within+s.Path] && !s.Handler.Detached {
				d.t.Errorf("%s starts before %s of an earlier stage is over", task.Step.Path, s.Path)
			}
		}
	}
	for _, e := range task.Step.After() {
		if !d.decided[within+e.From.Path] {
			d.t.Errorf("%s starts before %s, but %s", task.Step.Path, e.From.Path, e.Reason().Why)
		}
	}
}

// end lets a call end. Its result depends on what it got.
func (d *driver) end(i int) {
	task := d.calls[i]
	d.calls = slices.Delete(d.calls, i, i+1)
	path := task.Ref()
	var o core.Outcome
	if d.failed[path] < d.world.fails[path] {
		d.failed[path]++
		o.Err = context.DeadlineExceeded
	} else {
		body, err := json.Marshal(task.Body)
		if err != nil {
			d.t.Fatal(err)
		}
		h := fnv.New32a()
		fmt.Fprintf(h, "%s %s", path, body)
		o.Result.Response = int(h.Sum32() % 1000)
		d.ended[path] = true
	}
	live := d.live()
	d.steps = append(d.steps, func(r *core.Run) { r.Finish(path, o, live) })
	d.run.Finish(path, o, live)
}

// checkSaved checks that a checkpoint does not depend on those before it, whose parts it shares.
func (d *driver) checkSaved() {
	run := d.fresh(d.from)
	for _, step := range d.steps {
		step(run)
	}
	if want := run.Checkpoint(); !bytes.Equal(d.saved.Checkpoint, want) {
		d.t.Errorf("the run has the checkpoint\n%s, and without those before it\n%s\n%s", d.saved.Checkpoint, want, d.world.yaml)
	}
}

// take begins the run, or goes on from its checkpoint.
func (d *driver) take(saved []byte) {
	d.run, d.from, d.steps = d.fresh(saved), saved, nil
}

func (d *driver) fresh(saved []byte) *core.Run {
	run, err := core.Resume(d.plan, d.start, saved)
	if err != nil {
		d.t.Fatal(err)
	}
	return run
}

// resume is a crash and a new process.
func (d *driver) resume() {
	d.calls, d.failed = nil, maps.Clone(d.savedFailed)
	if d.failed == nil {
		d.failed = map[string]int{}
	}
	if d.ended = maps.Clone(d.savedEnded); d.ended == nil {
		d.ended = map[string]bool{}
	}
	d.take(d.saved.Checkpoint)
}

// same compares two ends of the same run. A failed run keeps what ended before
// the failure, and that depends on the order in which calls end.
func same(t *rapid.T, w world, want, have checkpoint.RunView) {
	for _, v := range []checkpoint.RunView{want, have} {
		undoneIfGivenUp(t, w, v)
	}
	// Whether anything was done that had to be undone depends on the order of ends, too.
	if (want.Status == model.Succeeded) != (have.Status == model.Succeeded) {
		t.Fatalf("want the run %s, have it %s: %s\n%s", want.Status, have.Status, have.Error, w.yaml)
	}
	if want.Status != model.Succeeded {
		return
	}
	if d := cmp.Diff(want.SharedState, have.SharedState); d != "" {
		t.Errorf("shared state (- want, + have):\n%s\n%s", d, w.yaml)
	}
	if d := cmp.Diff(outcomes(want), outcomes(have)); d != "" {
		t.Errorf("outcomes (- want, + have):\n%s\n%s", d, w.yaml)
	}
}

// undoneIfGivenUp makes sure that a run which has given up has undone all that has
// succeeded, and another nothing.
func undoneIfGivenUp(t *rapid.T, w world, v checkpoint.RunView) {
	undone := map[string]bool{}
	for _, h := range v.Handlers {
		if path, ok := strings.CutSuffix(h.Path, "/compensate"); ok {
			undone[path] = h.Outcome == model.OutcomeSucceeded
		}
	}
	for _, h := range v.Handlers {
		_, can := w.fails[h.Path+"/compensate"]
		want := can && h.Within == "" && v.Status != model.Succeeded && h.Outcome == model.OutcomeSucceeded &&
			!strings.HasPrefix(h.Reason, "on-error ")
		if undone[h.Path] != want {
			t.Errorf("%s is %s in a run that is %s: want it undone %v, have %v\n%s", h.Path, h.Outcome, v.Status, want, undone[h.Path], w.yaml)
		}
		if want && v.Status != model.Cancelled {
			t.Errorf("the run has undone %s, and is %s\n%s", h.Path, v.Status, w.yaml)
		}
	}
}

// outcomes returns what became of each handler. What was done inside of the elements of a
// list of which one has failed depends on the order of ends.
func outcomes(v checkpoint.RunView) map[string]string {
	out := map[string]string{}
	failed := map[string]bool{}
	for _, h := range v.Handlers {
		failed[strings.TrimPrefix(h.Within+">"+h.Path, ">")] = h.Items != nil && h.Items.Failed > 0
	}
	for _, h := range v.Handlers {
		if !insideOf(h.Within, failed) {
			out[h.Within+">"+h.Path] = h.Outcome
		}
	}
	return out
}

// insideOf reports whether one of the places that lead to within is among some.
func insideOf(within string, some map[string]bool) bool {
	for at, c := range within + ">" {
		if c == '>' && some[within[:at]] {
			return true
		}
	}
	return false
}

func TestAnyOrderOfEndsGivesTheStateOfTheDeclaredOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		want := newDriver(t, w, true).drive()
		d := newDriver(t, w, false)
		d.pick = func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "ends") }
		same(t, w, want, d.drive())
	})
}

func TestCrashesChangeNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		want := newDriver(t, w, false).drive()
		d := newDriver(t, w, false)
		d.pick = func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "ends") }
		left := rapid.IntRange(1, 8).Draw(t, "crashes")
		d.crash = func(at string) bool {
			if left == 0 || rapid.IntRange(0, 3).Draw(t, "crash "+at) != 0 {
				return false
			}
			left--
			return true
		}
		same(t, w, want, d.drive())
	})
}

// A resumed run says the same of itself as the one that was lost.
func TestCheckpointHoldsAllOfARun(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		d := newDriver(t, w, false)
		d.crash = func(at string) bool {
			if at != "after the save" {
				return false
			}
			run, err := core.Resume(d.plan, d.start, d.saved.Checkpoint)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(d.saved.Checkpoint), string(run.Change().Checkpoint)); diff != "" {
				t.Errorf("checkpoint (- saved, + resumed):\n%s", diff)
			}
			return false
		}
		d.drive()
	})
}
