package ui

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"procaas/engine/api/ui/words"
	"procaas/engine/checkpoint"
	"procaas/engine/explain"
	"procaas/engine/model"
	"procaas/engine/store"
)

type compareData struct {
	Runs  [2]checkpoint.RunView
	Rows  []compareRow
	Event []words.DiffLine // nil when both have the same payload
	State []words.DiffLine // likewise, of the shared state
}

// A compareRow is a handler in two runs.
type compareRow struct {
	Path    string
	Steps   [2]explain.StoryStep
	Took    [2]string
	Both    bool             // runs have reached it
	Outcome bool             // it differs
	Slower  bool             // one took more than twice as long, and one can notice it
	Result  []words.DiffLine // nil when it is the same
}

// noticed is a difference between durations that is worth a word.
const noticed = 20 * time.Millisecond

// compare shows in what two runs of a pipeline differ. Unless it is told which, the other one is the last that succeeded.
func (c runPages) compare(w http.ResponseWriter, r *http.Request) (err error) {
	var stories [2]explain.Story
	if stories[0], err = c.story(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	run := stories[0].Run
	with := strings.TrimSpace(r.FormValue("with"))
	if with == "" {
		good, _, err := c.o.Engine.List(r.Context(), store.RunFilter{Pipeline: run.Pipeline, Status: model.Succeeded, Limit: 2})
		if err != nil {
			return err
		}
		for _, g := range good {
			if g.ID != run.ID && with == "" {
				with = g.ID
			}
		}
		if with == "" {
			return NotFound("There is no other run of " + run.Pipeline + " that succeeded.")
		}
	}
	if stories[1], err = c.story(r.Context(), with); err != nil {
		return err
	}
	if other := stories[1].Run; other.Pipeline != run.Pipeline {
		text := "Want a run of " + run.Pipeline + ", and " + strconv.Quote(with) + " is one of " + other.Pipeline + "."
		return &Refused{http.StatusBadRequest, text}
	}
	c.show(w, r, http.StatusOK, "compare", "Two runs of "+run.Pipeline, newComparison(stories))
	return nil
}

func newComparison(stories [2]explain.Story) (d compareData) {
	rows := map[string]int{}
	for side, s := range stories {
		d.Runs[side] = s.Run
		for _, stage := range s.Stages {
			for _, step := range stage.Steps {
				i, known := rows[step.Path]
				if !known {
					i, d.Rows = len(d.Rows), append(d.Rows, compareRow{Path: step.Path})
					rows[step.Path] = i
				}
				d.Rows[i].Steps[side] = step
			}
		}
	}
	for i := range d.Rows {
		d.Rows[i].judge()
	}
	d.Event = words.Differences(d.Runs[0].Event.Payload, d.Runs[1].Event.Payload)
	d.State = words.Differences(d.Runs[0].SharedState, d.Runs[1].SharedState)
	return d
}

// judge says in what the two differ.
func (row *compareRow) judge() {
	var lasted [2]time.Duration
	for side := range row.Steps {
		s := &row.Steps[side]
		if s.Outcome == "" {
			s.Outcome = "absent"
		}
		if h := s.Handler; h != nil && h.Started != nil {
			row.Took[side] = words.Took(h.Started, h.Finished)
			if h.Finished != nil {
				lasted[side] = h.Finished.Sub(*h.Started)
			}
		}
	}
	a, b := row.Steps[0], row.Steps[1]
	short, long := min(lasted[0], lasted[1]), max(lasted[0], lasted[1])
	row.Outcome, row.Slower = a.Outcome != b.Outcome, long > 2*short && long-short > noticed
	row.Both = a.Outcome != "absent" && b.Outcome != "absent"
	if row.Both {
		row.Result = words.Differences(a.Response, b.Response)
	}
}
