package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"procaas/engine/core"
	"procaas/engine/model"
)

// What is called in a world that undoes: each has a step that can be undone, and ends with
// one that cannot, so that a call has succeeded when its last step has.
const undoneInside = `
  - id: q
    inputs: {}
    stages:
      - id: s
        handlers:
          - {id: a, request: {x: 1}, compensate: {request: {undo: 1}, retry: {attempts: 50}}}
          - {id: n, critical: CRITICAL, call: {pipeline: r}NESTED}
      - id: t
        handlers: [{id: b, request: {x: 3}, compensate: {request: {undo: 3}, retry: {attempts: 50}}}]
      - id: u
        handlers: [{id: last, request: {x: 4}}]
  - id: r
    inputs: {}
    stages:
      - id: s
        handlers: [{id: c, request: {x: 5}, compensate: {request: {undo: 5}, retry: {attempts: 50}}}]
      - id: u
        handlers: [{id: last, request: {x: 6}}]
`

// drawUndoing makes a pipeline of handlers that can be undone, calls of others, for one or
// for many, and stages that are repeated.
func drawUndoing(t *rapid.T) string {
	var b strings.Builder
	b.WriteString("pipelines:\n  - id: p\n    stages:\n")
	many := rapid.SampledFrom([]string{
		"{items: [1, 2, 3], max-parallel: 1}", "{items: [1, 2, 3], max-parallel: 3}",
		"{items: [1, 2, 3], max-parallel: 2, on-failure: continue}",
	})
	for i := range rapid.IntRange(1, 3).Draw(t, "stages") {
		if rapid.IntRange(0, 2).Draw(t, "repeated") == 0 {
			fmt.Fprintf(&b, "      - id: s%d\n        for-each: %s\n        handlers:\n          - {id: h, critical: %v, call: "+
				"{pipeline: q}}\n          - {id: g, critical: %v, request: {x: 7}}\n",
				i, many.Draw(t, "elements"), rapid.Bool().Draw(t, "critical"), rapid.Bool().Draw(t, "critical"))
			continue
		}
		fmt.Fprintf(&b, "      - id: s%d\n        handlers:\n", i)
		for j := range rapid.IntRange(1, 3).Draw(t, "handlers") {
			what := "request: {x: 8}, compensate: {request: {undo: 8}, retry: {attempts: 50}}"
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				what = "call: {pipeline: q}, compensate: {request: {undo: 9}, retry: {attempts: 50}}"
			case 1:
				what = "call: {pipeline: q}, for-each: " + many.Draw(t, "items")
			case 2:
				what = "call: {pipeline: q}" // its handlers are undone one by one
			}
			fmt.Fprintf(&b, "          - {id: h%d, critical: %v, %s}\n", j, rapid.Bool().Draw(t, "critical"), what)
		}
	}
	nested := rapid.SampledFrom([]string{"", ", compensate: {request: {undo: 2}, retry: {attempts: 50}}"})
	return b.String() + strings.NewReplacer("CRITICAL", fmt.Sprint(rapid.Bool().Draw(t, "critical")), "NESTED", nested.Draw(t, "nested")).
		Replace(undoneInside)
}

// A ledger is the services that a world calls. They remember what they have done by its
// key: asked again they say so, and know when it has been reversed.
type ledger struct {
	refs   map[string]string // of effects, by key
	done   map[string]bool   // by key
	undone map[string]bool   // by key
	broken map[string]bool   // by ref: its compensation has failed for good
	ended  map[string]bool   // calls whose success the run knows of, by ref

	saved map[string]bool // ended, as far as that is saved
}

// undo reverses what a handler has done, with all inside of it when it is a call.
func (l *ledger) undo(ref string) {
	for key, of := range l.refs {
		if l.done[key] && (of == ref || strings.HasPrefix(of, ref+">")) {
			l.done[key], l.undone[key] = false, true
		}
	}
}

// isLeft reports whether what was done at a ref should have been undone: it was done inside
// of a call that has not succeeded, or in the run itself, which was undone.
func (l *ledger) isLeft(ref string, status model.Status) bool {
	if strings.HasSuffix(ref, "/last") || strings.HasSuffix(ref, "/g") || l.broken[ref] {
		return false // nothing undoes it
	}
	at := strings.LastIndex(ref, ">")
	if at < 0 {
		return status == model.Cancelled && !strings.Contains(ref, "[")
	}
	within, path := ref[:at+1], ref[at+1:]
	pipeline := path[:strings.Index(path, "/")]
	switch {
	case pipeline == "p": // a call inside of an element, which has succeeded
		return false
	case !l.ended[within+pipeline+"/u/last"]:
		return true
	}
	return l.isLeft(ref[:at], status)
}

// TestWhatIsNotFinishedIsUndone lets calls fail, nodes die, operators cancel and retry, in
// pipelines that are inside of each other. However the run ends, what was done inside of
// a call that has not succeeded was undone, and so was all that can be when the run was;
// and no service is asked again by the key of what it has reversed. A compensation that fails
// for good leaves only its own work.
func TestWhatIsNotFinishedIsUndone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		yaml := drawUndoing(t)
		t.Log(yaml)
		p := plan(t, yaml)
		l := ledger{
			refs: map[string]string{}, done: map[string]bool{}, undone: map[string]bool{}, ended: map[string]bool{},
			broken: map[string]bool{}, saved: map[string]bool{},
		}
		start := core.Start{ID: "r1", Event: model.Event{ID: "e1", Type: "p"}}
		live := core.Live{Now: noon}
		run := core.Begin(p, start)
		var saved []byte
		var calls []core.Attempt
		stopped := false
		one := func(of int, what string) bool { return rapid.IntRange(0, of-1).Draw(t, what) == of-1 }
		resume := func() {
			var err error
			if run, err = core.Resume(p, start, saved); err != nil {
				t.Fatal(err)
			}
			calls, l.ended = nil, maps.Clone(l.saved)
			if stopped {
				run.Stop("enough", live.Now)
			}
		}
		crash := func() {
			t.Log("crash")
			for _, c := range calls {
				if !strings.HasSuffix(c.Ref(), "/compensate") && !l.undone[c.IdempotencyKey] && one(2, "done before the crash") {
					l.refs[c.IdempotencyKey], l.done[c.IdempotencyKey] = c.Ref(), true
				}
			}
			resume()
		}
		for retries := 0; ; {
			tasks := run.Ready(live)
			if one(15, "crash before the save") {
				crash()
				continue
			}
			if run.MustSave() || run.Status() != model.Running || one(3, "save") {
				saved, l.saved = run.Change().Checkpoint, maps.Clone(l.ended)
			}
			for _, task := range tasks {
				if l.undone[task.IdempotencyKey] && !strings.HasSuffix(task.Ref(), "/compensate") {
					t.Fatalf("%s is called by the key of what was undone", task.Ref())
				}
				if one(12, "withdraw") {
					run.Withdraw(task.Ref(), live.Now)
					continue
				}
				t.Logf("start %s attempt=%d key=%.6s", task.Ref(), task.Attempt, task.IdempotencyKey)
				calls = append(calls, task)
			}
			if one(15, "crash after the save") {
				crash()
				continue
			}
			if !stopped && one(40, "cancel") {
				stopped = true
				t.Log("cancel")
				run.Stop("enough", live.Now)
				continue
			}
			switch status := run.Status(); {
			case status == model.Failed && retries < 3 && one(2, "retry"):
				retries++
				t.Log("retry")
				start.Generation++
				resume()
			case status.Ended():
				for key, ref := range l.refs {
					if l.done[key] && l.isLeft(ref, status) {
						t.Fatalf("the run is %s, and %s was not undone", status, ref)
					}
				}
				return
			case len(calls) > 0:
				l.end(t, run, &calls, live)
			case status == model.Parked && run.Next().After(live.Now):
				live.Now = run.Next()
			case status == model.Parked:
				t.Fatalf("the run is parked until %s, and it is %s", run.Next(), live.Now)
			}
			live.Now = live.Now.Add(time.Millisecond)
		}
	})
}

// end lets one of the calls in flight end.
func (l *ledger) end(t *rapid.T, run *core.Run, calls *[]core.Attempt, live core.Live) {
	i := rapid.IntRange(0, len(*calls)-1).Draw(t, "call")
	task := (*calls)[i]
	*calls = append((*calls)[:i:i], (*calls)[i+1:]...)
	ref, key := task.Ref(), task.IdempotencyKey
	comes := rapid.IntRange(0, 9).Draw(t, "comes to")
	t.Logf("end %s: %d", ref, comes)
	switch of, undoes := strings.CutSuffix(ref, "/compensate"); {
	case undoes && comes < 3:
		run.Finish(ref, core.Outcome{Err: failure("503")}, live)
	case undoes && comes == 3:
		l.broken[of] = true
		run.Finish(ref, core.Outcome{Err: model.Permanent(errors.New("no"))}, live)
	case undoes:
		delete(l.broken, of)
		l.undo(of)
		run.Finish(ref, core.Outcome{}, live)
	case comes < 2 && !l.done[key]:
		run.Finish(ref, core.Outcome{Err: failure("503")}, live)
	case comes < 4 && !l.done[key]:
		run.Finish(ref, core.Outcome{Err: model.Permanent(errors.New("no"))}, live)
	default:
		l.refs[key], l.done[key], l.ended[ref] = ref, true, true
		run.Finish(ref, core.Outcome{}, live)
	}
}
