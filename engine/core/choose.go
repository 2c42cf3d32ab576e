package core

import (
	"fmt"

	"procaas/dsl/tree"
	"procaas/engine/planner"
)

// This file chooses the branch of a stage.

// enter evaluates the conditions of the current stage before any handler of it begins. It skips
// handlers at once that the conditions exclude. All others run as if there were no conditions.
// Records show what has been decided, so a stage is never decided twice, even if configs change.
func (r *Run) enter(live Live) {
	stage := r.current()
	if stage == nil || r.givesUp() || stage.Declared.Enabled == nil && len(stage.Declared.Choose) == 0 {
		return
	}
	for _, s := range stage.Steps {
		if rec := &r.records[s.Position]; rec.reached() || rec.underway {
			return
		}
	}
	enabled, why, err := r.scope.condition(stage.Declared.Enabled, "enabled", live)
	if err != nil {
		r.failConditions(stage, fmt.Errorf("enabled of stage %s: %w", stage.ID, err), live)
		return
	}
	if !enabled {
		for _, s := range stage.Steps {
			r.scope.see(s, &r.records[s.Position])
			r.skip(s, "the stage is left out: "+why, live)
		}
		return
	}
	if len(stage.Declared.Choose) > 0 && stage.Loop() == nil {
		r.choose(stage, live)
	}
}

// choose takes the first branch whose condition holds, and skips the handlers of the others.
func (r *Run) choose(stage *planner.Stage, live Live) {
	var taken *tree.Branch
	reasons := map[*tree.Branch]string{}
	for _, b := range stage.Declared.Choose {
		if taken != nil {
			reasons[b] = fmt.Sprintf("branch %d is taken", taken.Number())
			continue
		}
		fits, why, err := r.scope.condition(b.When, "when", live)
		if err != nil {
			r.failConditions(stage, fmt.Errorf("when of branch %d of stage %s: %w", b.Number(), stage.ID, err), live)
			return
		}
		if fits {
			taken = b
		}
		reasons[b] = why
	}
	for _, s := range stage.Steps {
		if b := s.Handler.Branch; b != nil && b != taken {
			r.scope.see(s, &r.records[s.Position])
			r.skip(s, fmt.Sprintf("branch %d is not taken: %s", b.Number(), reasons[b]), live)
		}
	}
}

// failConditions gives up the handlers of a stage whose conditions cannot be computed: the first
// critical one, which fails the run, or all of them. An operator's retry computes the conditions
// again.
func (r *Run) failConditions(stage *planner.Stage, err error, live Live) {
	for _, s := range stage.Steps {
		if s.Handler.IsCritical() {
			r.giveUp(s, err, live)
			return
		}
	}
	for _, s := range stage.Steps {
		r.giveUp(s, err, live)
	}
}
