package definitions

import (
	"fmt"
	"slices"

	"procaas/dsl/diag"
	"procaas/engine/guard"
	"procaas/engine/planner"
)

// Under lists the handlers at or below a path, in order.
func (d *Definition) Under(path string) []*planner.Step {
	var out []*planner.Step
	for _, p := range d.Plans {
		for _, s := range p.Written {
			if p.Pipeline.ID == path || s.StagePath == path || s.Path == path {
				out = append(out, s)
			} else if s.Undo != nil && s.Undo.Path == path {
				out = append(out, s.Undo)
			}
		}
	}
	return out
}

// UnknownPath returns the error of an unknown path, with a suggestion.
func (d *Definition) UnknownPath(path string) *guard.ControlError {
	var known []string
	for _, p := range d.Plans {
		known = append(known, p.Pipeline.ID)
		for _, s := range p.Written {
			known = append(known, s.StagePath, s.Path)
			if s.Undo != nil {
				known = append(known, s.Undo.Path)
			}
		}
	}
	message := fmt.Sprintf("there is no pipeline, stage or handler %s", path)
	if near := diag.Suggest(path, slices.Compact(known)); near != "" {
		message += fmt.Sprintf("; did you mean %s?", near)
	}
	return &guard.ControlError{Code: guard.CodeControlPath, Message: message}
}
