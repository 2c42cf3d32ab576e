package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"procaas/dsl/diag"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// Rerun makes the checkpoint from which another run repeats an ended run, with this id, from a stage on. The
// outcomes of the stages before stay, and the shared state is that before the stage. The other run
// does not undo what was done before. It reads the flow's names from the key again.
func Rerun(p *planner.Plan, run string, saved []byte, stage string) ([]byte, error) {
	at, err := stageOf(p, stage)
	if err != nil {
		return nil, err
	}
	if len(saved) == 0 {
		return nil, errors.New("it has not begun")
	}
	c, err := checkpoint.Read(saved)
	switch {
	case err != nil:
		return nil, err
	case c.Undoing:
		return nil, errors.New("it has undone what it had done")
	case at > c.Stage && c.Ended != model.Succeeded:
		return nil, fmt.Errorf("it has not reached stage %s: it ended in stage %s", stage, p.Stages[c.Stage].ID)
	}
	from := checkpoint.Run{Format: checkpoint.Format, Pipeline: c.Pipeline, Stage: at, Shared: c.Shared}
	lost := map[string]string{} // names whose values before the stage are unknown, and the handlers that changed them
	for _, h := range slices.Backward(c.Handlers) {
		s := p.ByPath[h.Path]
		switch {
		case s == nil:
			return nil, fmt.Errorf("its version has no handler %s", h.Path)
		case s.Stage >= at:
			for _, was := range h.Was {
				from.Shared.Set(was.Name, was.Raw)
				delete(lost, was.Name)
			}
			for _, name := range h.Wide {
				lost[name] = h.Path
			}
			continue
		case h.Outcome == "":
			continue // detached and undecided
		}
		h.Borrowed, h.Undo = true, nil
		if h.Call != nil { // kept to be undone, which this run does not
			h.Trail, h.Call = h.Call.Trail(), nil
		}
		if h.Outcome == model.OutcomeSucceeded && h.Reason == "" {
			h.Reason = "done by run " + run
		}
		from.Handlers = append(from.Handlers, h)
		for _, was := range h.Was {
			from.Wrote = append(from.Wrote, was.Name)
		}
		from.Wrote = append(from.Wrote, h.Wide...)
	}
	for _, name := range slices.Sorted(maps.Keys(lost)) {
		return nil, fmt.Errorf("shared-state.%s is not known as it was before stage %s: it had more than %d bytes when %s replaced it",
			name, stage, maxSeen, lost[name])
	}
	slices.Reverse(from.Handlers)
	slices.Sort(from.Wrote)
	from.Wrote = slices.Compact(from.Wrote)
	for _, n := range p.Shared {
		if n.Kept && (c.Ended == model.Succeeded || !slices.Contains(from.Wrote, n.Name)) {
			from.Shared.Delete(n.Name)
			from.Wrote = slices.DeleteFunc(from.Wrote, func(name string) bool { return name == n.Name })
		}
	}
	return from.Encode(), nil
}

// stageOf returns the index of the stage with an id or a path.
func stageOf(p *planner.Plan, stage string) (int, error) {
	var known []string
	for i, s := range p.Stages {
		if stage == s.ID || stage == p.Pipeline.ID+"/"+s.ID {
			return i, nil
		}
		known = append(known, s.ID)
	}
	text := fmt.Sprintf("in the version of the run, pipeline %s has no stage %q", p.Pipeline.ID, stage)
	if near := diag.Suggest(stage, known); near != "" {
		return 0, fmt.Errorf("%s; did you mean %s?", text, near)
	}
	return 0, fmt.Errorf("%s; want one of %s", text, strings.Join(known, ", "))
}
