package definitions

import (
	"fmt"
	"slices"

	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/guard"
	"procaas/engine/planner"
	"procaas/engine/triggers"
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

// Declares reports whether there is something at a path that operators may hold: a trigger, or what an add-on declares.
func (d *Definition) Declares(path string) bool { return slices.Contains(d.declared(), path) }

// declared lists the paths of triggers, and of what add-ons declare.
func (d *Definition) declared() (paths []string) {
	for _, t := range d.Bundle.Triggers {
		paths = append(paths, triggers.Path(t.ID))
	}
	d.Bundle.EachDeclaration(func(x tree.Declaration) {
		if x.Path != "" {
			paths = append(paths, x.Path)
		}
	})
	return paths
}

// UnknownPath returns the error of an unknown path, with a suggestion.
func (d *Definition) UnknownPath(path string) *guard.ControlError {
	known := d.declared()
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
	if id, ok := triggers.Of(path); ok {
		message = fmt.Sprintf("there is no trigger %s", id)
	}
	if near := diag.Suggest(path, slices.Compact(known)); near != "" {
		message += fmt.Sprintf("; did you mean %s?", near)
	}
	return &guard.ControlError{Code: guard.CodeControlPath, Message: message}
}
