package core

import (
	"maps"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file runs the stage of finally. It begins when the run would end, whatever its status, and after the compensations.
// All of its handlers are tried. The status of the run is kept meanwhile, and counts once they are decided.

// close ends the run, after finally if there is one.
func (r *Run) close(s model.Status) {
	if r.plan.Final == nil {
		r.end(s)
		return
	}
	r.closing, r.settled = s, false
	r.scope.closes(r)
	r.touch()
}

// closed ends the run once all handlers of finally are decided.
func (r *Run) closed() {
	for _, s := range r.plan.Final.Steps {
		if !r.records[s.Position].decided() {
			return
		}
	}
	switch {
	case r.brokenFinally() != nil:
		r.end(model.Failed)
	case r.stopping != "":
		r.reason = r.stopping
		r.end(model.Cancelled)
	default:
		r.end(r.closing)
	}
}

// brokenFinally returns the first critical handler of finally that has failed for good, or nil.
func (r *Run) brokenFinally() *planner.Step {
	if r.closing == "" {
		return nil
	}
	for _, s := range r.plan.Final.Steps {
		if s.Handler.IsCritical() && r.records[s.Position].outcome == model.OutcomeFailed {
			return s
		}
	}
	return nil
}

// redriveFinally is [Run.redrive] for a run that is in finally. It returns false if the run goes on before it: then finally
// runs again at the next end, with new keys, because a service must not take these calls for repetitions.
func (r *Run) redriveFinally() (done bool) {
	if r.closing == "" {
		return false
	}
	if r.closing != model.Failed || !r.status.Ended() {
		r.status = model.Running
		r.redriveSteps(r.plan.Final.Steps)
		r.republish(r.plan.Final.Steps)
		r.touch()
		return true
	}
	for _, s := range r.plan.Final.Steps {
		if rec := &r.records[s.Position]; rec.reached() {
			r.whole.redone.add(r.within + s.Path)
			*rec = record{}
			delete(r.scope.sources, s.Handler.ID)
		}
	}
	r.closing = ""
	r.scope.begins(r.began)
	return false
}

// closes sets what handlers of finally may read of the run. Handlers that it has not decided count as skipped.
func (s *scope) closes(r *Run) {
	if r.closing == "" {
		return
	}
	for _, step := range r.plan.Steps {
		if _, ok := s.sources[step.Handler.ID]; !ok && !step.Final {
			s.publish(step.Handler.ID, &record{outcome: model.OutcomeSkipped})
		}
	}
	s.self = maps.Clone((*runRoot)(s).Data())
	s.self["status"], s.self["error"] = string(r.closing), r.errorData()
}

// errorData is why the run has given up, as expressions read it.
func (r *Run) errorData() any {
	path, failure, class := r.gaveUp()
	if failure == "" {
		return nil
	}
	return map[string]any{"handler": path, "message": failure, "class": class}
}
