package flowtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/dsl/diag"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// judge compares the results with what the test expects. base is the unchanged test, or nil.
func (t *trial) judge(base *trial) []Difference {
	j := judge{trial: t}
	if t.variant.Off != "" {
		j.relaxed = t.suite.relax(t.variant.Off, base)
	}
	alone := len(t.test.Events) == 1 && t.test.Expect != nil
	for i, h := range t.handed {
		e := h.event.Expect
		if alone && t.test.Expect.Refused != "" {
			e = t.test.Expect
		}
		j.handed(fmt.Sprintf("events[%d]", i), h, e)
	}
	if e := t.test.Expect; e != nil && e.Refused == "" {
		j.whole(e, alone)
	}
	if len(t.problems) == 0 {
		j.failures()
	}
	slices.SortStableFunc(j.found, func(a, b Difference) int {
		x, y := a.Span.Start, b.Span.Start
		return cmp.Or(cmp.Compare(x.Line, y.Line), cmp.Compare(x.Column, y.Column))
	})
	found := append(t.problems, j.found...)
	if len(found) > 0 {
		for _, note := range t.spentNotes {
			found[0].note(note)
		}
	}
	return found
}

// A judge collects differences.
type judge struct {
	*trial
	relaxed relaxation
	found   []Difference
	told    []string // ids of the runs whose end the test expects
}

func (j *judge) add(at diag.Span, path, want, have string) {
	j.found = append(j.found, Difference{Path: path, Span: head(at), Want: want, Have: have})
}

// crashes reports whether calls may have been repeated, and time lost.
func (j *judge) crashes() bool { return j.variant.CrashAt > 0 }

// handed checks an event of the test.
func (j *judge) handed(path string, h *handed, e *Expect) {
	e, own := j.instead(e)
	switch {
	case h.refused != nil && (e == nil || e.Refused == ""):
		at := h.event.Span
		j.add(at, path, "the event "+h.event.Type+" to be taken in", "refused: "+h.refused.Code+": "+h.refused.Message)
	case h.refused != nil:
		if h.refused.Code != e.Refused && !strings.Contains(h.refused.Message, e.Refused) {
			j.add(e.at("refused"), path+".expect.refused", e.Refused, h.refused.Code+": "+h.refused.Message)
		}
	case e == nil:
	case e.Refused != "":
		j.takenIn(path+".expect.refused", h, e)
	default:
		j.run(path+".expect", e, own, j.view(h.run))
	}
}

// takenIn reports that an event was not refused. If that was undecided when it came, its run says
// what happened.
func (j *judge) takenIn(path string, h *handed, e *Expect) {
	d := Difference{Path: path, Span: head(e.at("refused")), Want: e.Refused, Have: "the event was taken in"}
	if r := j.view(h.run); h.undecided && r != nil {
		j.told = append(j.told, h.run)
		d.Have += " undecided, since an earlier event of the key was pending or the event was due later. Its run is " + statusOf(r)
		d.Note = fmt.Sprintf("expect what the client sees: expect: {status: %s}. To be refused at once, the event must come when "+
			"no earlier one is pending: at: 1m", r.Status)
	}
	j.found = append(j.found, d)
}

// failures reports failed runs that the test does not expect.
func (j *judge) failures() {
	for i := range j.runs {
		r := &j.runs[i]
		if r.Status != model.Failed || slices.Contains(j.told, r.ID) || j.relaxed.pipelines[r.Pipeline] || j.expectsBlocked(r) {
			continue
		}
		d := Difference{Path: "test", Span: head(j.test.Span), Want: "no failed run of " + r.Pipeline, Have: statusOf(r)}
		wanted := fmt.Sprintf("{status: failed, failed: %s}", r.FailedPath)
		if r.FailedPath == "" {
			wanted = "{status: failed}"
		}
		n := slices.IndexFunc(j.trial.handed, func(h *handed) bool { return h.run == r.ID })
		switch {
		case n < 0:
			d.Note = fmt.Sprintf("if this is right, say so in the expect of the test: runs: {%s: %s}", r.Pipeline, wanted)
		case len(j.trial.handed) == 1 && j.trial.handed[0].event.Expect == nil:
			d.Note = "if this is right, say so: expect: " + wanted
		default:
			d.Path, d.Span = fmt.Sprintf("events[%d]", n), head(j.trial.handed[n].event.Span)
			d.Note = "if this is right, say so below the event: expect: " + wanted
		}
		j.found = append(j.found, d)
	}
}

// expectsBlocked reports whether the test expects that the run blocks its key, which only a failed
// run does.
func (j *judge) expectsBlocked(r *checkpoint.RunView) bool {
	return j.test.Expect != nil && slices.ContainsFunc(j.test.Expect.Entities, func(e *ExpectedEntity) bool {
		return e.Blocked != nil && *e.Blocked && e.Key == r.Key && j.suite.flow(e.Flow).ID == r.Flow
	})
}

// tells reports whether an expect says how a run ends.
func (j *judge) tells(e *Expect, r *checkpoint.RunView) bool {
	if e.Status != "" || e.Failed != "" || e.Error != "" {
		return true
	}
	for name, h := range e.Handlers {
		if (h.Word == model.OutcomeFailed || h.Outcome == model.OutcomeFailed || h.Error != "") &&
			slices.Contains(j.suite.names.find(name, r.Pipeline), r.FailedPath) {
			return true
		}
	}
	return false
}

// statusOf returns the status of a run, and why.
func statusOf(r *checkpoint.RunView) string {
	text := string(r.Status)
	for _, why := range []string{r.Error, r.Reason} {
		if why != "" {
			text += ": " + why
		}
	}
	return text
}

// view returns the view of a run.
func (j *judge) view(id string) *checkpoint.RunView {
	i := slices.IndexFunc(j.runs, func(r checkpoint.RunView) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &j.runs[i]
}

// instead returns the expectations without the left out handler, and those that the test states for
// that case.
func (j *judge) instead(e *Expect) (*Expect, *Expect) {
	own := &Expect{}
	if e == nil || j.variant.Off == "" {
		return e, own
	}
	if name := longest(e.WhenOff, j.variant.Off); name != "" {
		own = e.WhenOff[name]
		return e.replaced(own), own
	}
	return e, own
}

// whole checks the expect of a test. alone says that it has one event, whose run it is about.
func (j *judge) whole(e *Expect, alone bool) {
	e, own := j.instead(e)
	if alone && j.trial.handed[0].run != "" {
		one := *e
		one.Calls = nil
		one.Order = nil
		one.Emits = nil
		one.Elapsed = 0
		one.Within = 0
		one.NotBefore = 0
		j.run("expect", &one, own, j.view(j.trial.handed[0].run))
	}
	j.time("expect", e, own, j.ended, j.ofAllRuns(alone))
	j.callsOf("expect", e, own, "")
	j.emitsOf("expect", e, own, "")
	for _, pipeline := range sorted(e.Runs) {
		j.runsOf(pipeline, e.Runs[pipeline])
	}
	for i, want := range e.Entities {
		j.entity(fmt.Sprintf("expect.entities[%d]", i), want.Span, j.suite.flow(want.Flow).ID, want.Key, want, own.Entities != nil)
	}
}

// runsOf checks the runs of a pipeline.
func (j *judge) runsOf(pipeline string, want []*Expect) {
	path := "expect.runs." + pipeline
	if j.relaxed.pipelines[pipeline] {
		return
	}
	var have []*checkpoint.RunView
	for i := range j.runs {
		if j.runs[i].Pipeline == pipeline {
			have = append(have, &j.runs[i])
		}
	}
	if len(have) != len(want) {
		j.add(want[0].Key.Span, path, count(len(want), "run"), count(len(have), "run"))
	}
	for i, e := range want[:min(len(want), len(have))] {
		e, own := j.instead(e)
		at := path
		if len(want) > 1 {
			at = fmt.Sprintf("%s[%d]", path, i)
		}
		j.run(at, e, own, have[i])
	}
}

// run checks one run. Fields of own are not relaxed.
func (j *judge) run(path string, e, own *Expect, r *checkpoint.RunView) {
	if r == nil {
		j.add(e.Span, path, "a run", "none")
		return
	}
	if j.tells(e, r) {
		j.told = append(j.told, r.ID)
	}
	j.status(path, e, r)
	if e.Pipeline != "" && e.Pipeline != r.Pipeline {
		j.add(e.at("pipeline"), path+".pipeline", e.Pipeline, r.Pipeline)
	}
	if e.Failed != "" && r.FailedPath != e.Failed && !strings.HasSuffix(r.FailedPath, "/"+e.Failed) {
		j.add(e.at("failed"), path+".failed", e.Failed, orNothing(r.FailedPath))
	}
	if !strings.Contains(r.Error, e.Error) {
		j.add(e.at("error"), path+".error", e.Error, orNothing(r.Error))
	}
	if !strings.Contains(r.Reason, e.Reason) {
		j.add(e.at("reason"), path+".reason", e.Reason, orNothing(r.Reason))
	}
	j.state(path, e, own, r)
	j.outputs(path, e, own, r)
	for _, name := range sorted(e.Handlers) {
		j.handler(path+".handlers."+name, name, e.Handlers[name], own.Handlers != nil, r)
	}
	if e.State != "" || e.Transitions != nil {
		want := &ExpectedEntity{State: e.State, Transitions: e.Transitions, Places: e.Places}
		j.entity(path, e.Span, r.Flow, r.Key, want, own.State != "")
	}
	took := j.took(r)
	j.time(path, e, own, took, took.String())
	j.callsOf(path, e, own, r.ID)
	j.emitsOf(path, e, own, r.ID)
}

// status checks the status of a run, and reports the reason of another one.
func (j *judge) status(path string, e *Expect, r *checkpoint.RunView) {
	if e.Status == "" || e.Status == string(r.Status) {
		return
	}
	j.add(e.at("status"), path+".status", e.Status, statusOf(r))
}

// state checks the shared state, except names that may differ.
func (j *judge) state(path string, e, own *Expect, r *checkpoint.RunView) {
	items := e.SharedState.Items()
	for i, k := range e.SharedState.Keys() {
		if own.SharedState.Get(k.Name) == nil && j.relaxed.names[k.Name] {
			continue
		}
		j.found = append(j.found, matchName(path+".shared-state", k, items[i], r.SharedState)...)
	}
}

// outputs checks the result, in which values of left out handlers may be missing.
func (j *judge) outputs(path string, e, own *Expect, r *checkpoint.RunView) {
	if own.Outputs == nil && len(j.relaxed.names)+len(j.relaxed.handlers) > 0 {
		return
	}
	items := e.Outputs.Items()
	for i, k := range e.Outputs.Keys() {
		j.found = append(j.found, matchName(path+".outputs", k, items[i], r.Outputs)...)
	}
}

// handler checks the outcome of a handler.
func (j *judge) handler(path, name string, e *ExpectedHandler, own bool, r *checkpoint.RunView) {
	fits := j.suite.names.find(name, r.Pipeline)
	if len(fits) != 1 {
		j.add(e.Key.Span, path, "the name of one handler of "+r.Pipeline, fmt.Sprint(len(fits))+" that have it")
		return
	}
	if j.relaxed.handlers[fits[0]] && !own {
		return
	}
	h := checkpoint.HandlerView{Outcome: "absent"}
	for _, view := range r.Handlers {
		if view.Path == fits[0] {
			h = view
		}
	}
	want := e.Outcome
	if e.Word != "" {
		want = e.Word
	}
	if want != "" && want != h.Outcome {
		have := h.Outcome
		for _, why := range []string{h.Reason, h.Error} {
			if why != "" {
				have += ": " + why
			}
		}
		j.add(e.PlaceOf("outcome", e.Key.Span), path, want, have)
	}
	if e.Attempts != nil && *e.Attempts != h.Attempts && !j.crashes() {
		j.add(e.PlaceOf("attempts", e.Key.Span), path+".attempts", fmt.Sprint(*e.Attempts), fmt.Sprint(h.Attempts))
	}
	if !strings.Contains(h.Reason, e.Reason) {
		j.add(e.PlaceOf("reason", e.Key.Span), path+".reason", e.Reason, orNothing(h.Reason))
	}
	if !strings.Contains(h.Error, e.Error) {
		j.add(e.PlaceOf("error", e.Key.Span), path+".error", e.Error, orNothing(h.Error))
	}
}

// took returns how long a run took, or until the end of the test if it is unfinished.
func (j *judge) took(r *checkpoint.RunView) time.Duration {
	if r.Finished != nil {
		return r.Finished.Sub(r.Accepted)
	}
	return j.clock.Now().Sub(r.Accepted)
}

// ofAllRuns says whether a time is that of the test or of its only event's run, which are easily
// confused.
func (j *judge) ofAllRuns(alone bool) string {
	if len(j.runs) < 2 {
		return j.ended.String()
	}
	text := fmt.Sprintf("all %d runs took %s", len(j.runs), j.ended)
	if !alone {
		return text
	}
	if r := j.view(j.trial.handed[0].run); r != nil {
		text += fmt.Sprintf(", the run of the event took %s", j.took(r))
	}
	return text
}

// time checks a duration. have describes it for people.
func (j *judge) time(path string, e, own *Expect, took time.Duration, have string) {
	off := j.variant.Off != ""
	differ := func(field, want string) {
		d := Difference{Path: path + "." + field, Span: head(e.at(field)), Want: want, Have: have}
		if have != took.String() {
			d.Note = "put it below the event to compare the run of the event alone: events: {expect: {" + field + ": …}}"
		}
		j.found = append(j.found, d)
	}
	if e.Elapsed != 0 && e.Elapsed != took && !j.crashes() && (!off || own.Elapsed != 0) {
		differ("elapsed", e.Elapsed.String())
	}
	if e.Within != 0 && took > e.Within && !j.crashes() && (!off || own.Within != 0) {
		differ("within", "at most "+e.Within.String())
	}
	if took < e.NotBefore && !j.crashes() && (!off || own.NotBefore != 0) {
		differ("not-before", "at least "+e.NotBefore.String())
	}
}

// at returns the place of a field.
func (e *Expect) at(field string) diag.Span { return e.PlaceOf(field, head(e.Span)) }

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}
