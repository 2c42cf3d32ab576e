package drawing

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/engine/api/ui/words"
	"procaas/engine/explain"
)

// A Happening is one line of the history of a run. The script of the page replays the drawing from these lines.
type Happening struct {
	At    time.Time
	After string // time since the run was accepted
	Path  string // of the handler; empty for the run itself
	Class string // the look of the handler from then on
	Text  string
}

// Happenings returns the history of a run, the oldest first.
func Happenings(s explain.Story) (all []Happening) {
	note := func(at *time.Time, path, class, text string) {
		if at != nil {
			all = append(all, Happening{At: *at, Path: path, Class: class, Text: text})
		}
	}
	note(&s.Run.Accepted, "", "", "The event is accepted.")
	for _, stage := range s.Stages {
		for _, step := range stage.Steps {
			h := step.Handler
			if h == nil {
				continue
			}
			note(h.Started, step.Path, "running", "begins.")
			for i, t := range step.Tries {
				if t.Number > 1 {
					note(&t.Began, step.Path, "running", fmt.Sprintf("begins attempt %d.", t.Number))
				}
				if t.Error != "" && (i < len(step.Tries)-1 || h.Finished == nil) {
					note(t.Ended, step.Path, "waiting", fmt.Sprintf("attempt %d fails: %s", t.Number, t.Error))
				}
			}
			note(h.Finished, step.Path, h.Outcome, words.Outcome(h.Outcome)+strings.TrimRight(": "+h.Error+h.Reason, ": "))
		}
	}
	note(s.Run.Finished, "", "", "The run ends: "+string(s.Run.Status)+".")
	slices.SortStableFunc(all, func(a, b Happening) int { return a.At.Compare(b.At) })
	for i := range all {
		all[i].After = "+" + words.Span(all[i].At.Sub(s.Run.Accepted))
	}
	return all
}
