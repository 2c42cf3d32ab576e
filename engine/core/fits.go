package core

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/dsl/tree"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// Fits returns why a run that began with one plan cannot continue with another, or nil. If it can,
// the other plan could have written the checkpoint, and the checkpoint has everything that the
// remaining handlers read. before is nil if the first plan is not known. Then Fits checks less.
func Fits(before, after *planner.Plan, v checkpoint.RunView) error {
	if now := after.Pipeline.FlowID(); now != v.Flow {
		return fmt.Errorf("it is of flow %s, and the pipeline of %s: the definition has changed", v.Flow, now)
	}
	if v.Stage == 0 {
		return nil // no handler has been decided
	}
	c := checkpoint.Run{Format: checkpoint.Format, Pipeline: v.Pipeline, Generation: v.Generation, Stage: v.Stage - 1}
	if v.Cancelling != "" {
		return errors.New("it is cancelled, and ends by the definition that it began with")
	}
	for _, h := range v.Handlers {
		if h.Within == "" && model.IsUndo(h.Path) {
			return errors.New("it undoes what it has done, by the definition that it began with")
		}
	}
	if path := v.InsideOf(); strings.Count(path, "/") == 1 {
		return fmt.Errorf("it is among the elements of stage %s, and goes on by the definition that the stage began with", path)
	} else if path != "" {
		return fmt.Errorf("it is inside of the pipeline that %s calls, and goes on by the definition that the call began with", path)
	}
	for _, h := range v.Handlers {
		if h.Within != "" {
			continue // belongs to a call that has ended
		}
		if strings.HasPrefix(h.Path, v.Pipeline+"/"+tree.FinalStage+"/") {
			switch {
			case v.Status != model.Failed:
				return errors.New("it is in finally, and ends by the definition that it began with")
			case after.ByPath[h.Path] == nil:
				return fmt.Errorf("its finally has run the handler %s, which the pipeline does not have", h.Path)
			}
			continue // they start afresh
		}
		saved := checkpoint.Record{Path: h.Path, Outcome: h.Outcome, Attempts: h.Attempts, Reason: h.Reason}
		if h.Outcome == model.OutcomeRunning || h.Outcome == model.OutcomeUnknown || h.Outcome == model.OutcomeWaiting {
			saved.Outcome = "" // not decided, which is all that matters here
		}
		if saved.Outcome == "" {
			saved.Attempts = cmp.Or(saved.Attempts, 1) // it was reached
		}
		c.Handlers = append(c.Handlers, saved)
	}
	r := newRun(after, Start{ID: v.ID, Flow: v.Flow, Key: v.Key, Generation: v.Generation}, nil)
	if err := r.restore(c); err != nil {
		return err
	}
	return (&fitting{before: before, run: r, failed: v.Status == model.Failed}).check()
}

// A fitting compares what a run has done by one plan with another plan.
type fitting struct {
	before *planner.Plan // may be nil
	run    *Run          // restored with the other plan
	failed bool          // the run has failed
}

func (f *fitting) check() error {
	if err := f.checkWay(); err != nil {
		return err
	}
	for _, s := range f.run.plan.Steps {
		rec, was := &f.run.records[s.Position], f.was(s)
		switch {
		case !rec.reached():
			continue
		case f.early(s) != nil:
			e := f.early(s)
			return fmt.Errorf("it has begun the handler %s, which now waits for %s: %s", s.Path, e.From.Path, e.Reason().Why)
		case f.goesOn(s):
			if was != nil && !rec.decided() && was.Handler.Type != s.Handler.Type {
				return fmt.Errorf("it has begun the handler %s as %s, which is %s now", s.Path, was.Handler.Type, s.Handler.Type)
			}
			continue
		}
		if err := f.checkCritical(s, was); err != nil {
			return err
		}
		if was == nil {
			continue
		}
		if err := f.checkKept(s, was); err != nil {
			return err
		}
	}
	return nil
}

// checkWay checks that the current stage, once begun, has chosen a branch for all remaining
// handlers of it.
func (f *fitting) checkWay() error {
	stage := f.run.current()
	if stage == nil {
		return nil
	}
	reached := func(s *planner.Step) bool { return f.run.records[s.Position].reached() }
	if !slices.ContainsFunc(stage.Steps, reached) {
		return nil
	}
	for _, s := range stage.Steps {
		if reached(s) {
			continue
		}
		was := f.was(s)
		now, then := stage.Declared, (*tree.Stage)(nil)
		if was != nil {
			then = f.before.Stages[was.Stage].Declared
		}
		if ways(now) == "" && ways(then) == "" {
			continue
		}
		if then == nil || ways(now) != ways(then) || branchOf(s) != branchOf(was) {
			return fmt.Errorf("it has chosen its way through stage %s, and the handler %s was not a part of that", stage.ID, s.Path)
		}
	}
	return nil
}

// ways writes the conditions of a stage as text to compare; empty for none.
func ways(stage *tree.Stage) string {
	if stage == nil || stage.Enabled == nil && len(stage.Choose) == 0 {
		return ""
	}
	text := "enabled " + planner.ValueText(stage.Enabled)
	for _, b := range stage.Choose {
		text += " when " + planner.ValueText(b.When)
	}
	return text
}

// branchOf returns the number of a handler's branch, or 0.
func branchOf(s *planner.Step) int {
	if s.Handler.Branch == nil {
		return 0
	}
	return s.Handler.Branch.Number()
}

// early returns the edge from an undecided handler that a reached handler should have waited for,
// or nil.
func (f *fitting) early(s *planner.Step) *planner.Edge {
	var first *planner.Step
	for earlier := range s.Waits() {
		if f.goesOn(earlier) && (first == nil || earlier.Index < first.Index) {
			first = earlier
		}
	}
	if first == nil {
		return nil
	}
	return &planner.Edge{From: first, To: s}
}

// goesOn reports whether a handler is still to be decided, or will be again when an operator
// retries the run. A failing run has such a critical handler, though calls may still be in flight.
func (f *fitting) goesOn(s *planner.Step) bool {
	rec, was := &f.run.records[s.Position], f.was(s)
	if !rec.decided() || rec.outcome != model.OutcomeFailed || s.Stage != f.run.stage && !s.Final || !s.Handler.IsCritical() {
		return !rec.decided()
	}
	return was == nil && f.failed || was != nil && was.Handler.IsCritical()
}

// was returns the handler in the first plan, or nil if that is not known.
func (f *fitting) was(s *planner.Step) *planner.Step {
	if f.before == nil {
		return nil
	}
	return f.before.ByPath[s.Path]
}

// checkCritical refuses a plan by which the run would succeed without a critical handler.
func (f *fitting) checkCritical(s, was *planner.Step) error {
	rec := &f.run.records[s.Position]
	wasCritical := was != nil && was.Handler.IsCritical()
	leftByAuthor := rec.outcome == model.OutcomeSkipped && model.LeftByAuthor(rec.reason)
	if !s.Handler.IsCritical() || wasCritical || leftByAuthor || rec.outcome == model.OutcomeSucceeded {
		return nil
	}
	return fmt.Errorf("it has gone on without the handler %s, which is critical now", s.Path)
}

// checkKept checks that a decided handler has left everything that the remaining handlers read from
// it.
func (f *fitting) checkKept(s, was *planner.Step) error {
	rec := &f.run.records[s.Position]
	now, then := leaves(s, rec), leaves(was, rec)
	for _, name := range slices.Concat(now, then) {
		if slices.Contains(now, name) && slices.Contains(then, name) {
			continue
		}
		reader := f.reader(datum.Path{planner.SharedRoot, name})
		switch {
		case reader == "":
		case slices.Contains(now, name):
			return fmt.Errorf("%s reads shared-state.%s, which %s writes now, and did not when it ran", reader, name, s.Path)
		default:
			return fmt.Errorf("%s reads shared-state.%s, which %s wrote when it ran, and does not now", reader, name, s.Path)
		}
	}
	if was.Keeps || rec.outcome != model.OutcomeSucceeded || rec.wentOn() {
		return nil // kept, or there was none
	}
	if reader := f.reader(datum.Path{planner.SourcesRoot, s.Handler.ID, "response"}); reader != "" {
		return fmt.Errorf("%s reads the response of %s, which nobody read when it came, so that it was not kept", reader, s.Path)
	}
	return nil
}

// reader names a remaining handler, a possible compensation, or the outputs, that read a path. It
// is empty for none.
func (f *fitting) reader(path datum.Path) string {
	reads := func(r datum.Read) bool { return r.Path.Overlaps(path) }
	for _, s := range f.run.plan.Steps {
		rec := &f.run.records[s.Position]
		switch {
		case (s.Stage >= f.run.stage || s.Handler.Detached) && f.goesOn(s) && slices.ContainsFunc(s.Reads, reads):
			return s.Path
		case s.Undo != nil && (rec.outcome == model.OutcomeSucceeded || !rec.decided()) && slices.ContainsFunc(s.Handler.CompensateReads(),
			reads):
			return s.Undo.Path
		}
	}
	if p := f.run.plan.Pipeline; slices.ContainsFunc(p.Outputs.Reads(), reads) {
		return p.ID + ": outputs"
	}
	return ""
}

// leaves lists the names of the shared state that a handler with this record has set.
func leaves(s *planner.Step, rec *record) (names []string) {
	var from []*expr.Value
	h := s.Handler
	switch {
	case rec.outcome != model.OutcomeSucceeded:
		if h.Fallback != nil && !h.IsCritical() {
			from = append(from, h.Fallback.Result)
		}
	case rec.wentOn():
		for _, rule := range h.RulesFor(false) {
			from = append(from, rule.Result)
		}
	case s.Type.SetsState:
		from = append(from, h.Result, h.Body)
	default:
		from = append(from, h.Result)
	}
	for _, v := range from {
		for _, k := range v.Keys() {
			names = append(names, k.Name)
		}
	}
	return names
}
