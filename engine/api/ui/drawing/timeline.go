package drawing

import (
	"slices"
	"time"

	"procaas/engine/api/ui/words"
	"procaas/engine/explain"
)

// A Timeline is a run over the time.
type Timeline struct {
	Rows     []timeRow
	Ticks    []string // below the rows, at even distances
	Cuts     []timeBar
	Parallel int // calls at the same time, at most
}

// A timeRow is a handler on the time line of a run.
type timeRow struct {
	Name  string
	Path  string // empty for the wait before the run
	Bars  []timeBar
	Label string
}

// A timeBar is a span of a row, in shares of 1000.
type timeBar struct {
	X, Width float64
	Class    string
	Title    string
}

// ticks is how many spaces the time line is divided into.
const ticks = 4

// NewTimeline lays a run on a time line, from its acceptance to its end.
func NewTimeline(s explain.Story, now time.Time) (d Timeline) {
	run := s.Run
	from, to := run.Accepted, now
	if run.Finished != nil {
		to = *run.Finished
	}
	scale := newScale(s, from, to)
	bar := func(began, ended time.Time, class, title string) timeBar {
		x := min(998, scale.x(began))
		return timeBar{X: x, Width: max(2, min(1000, scale.x(ended))-x), Class: class, Title: title}
	}
	for i, at := range scale.at[1:] {
		if began := scale.at[i]; scale.cut(i) {
			d.Cuts = append(d.Cuts, bar(began, at, "cut", "cut short: "+words.Span(at.Sub(began))))
		}
	}
	if start := run.Started; start != nil && start.After(from) {
		text := words.Span(start.Sub(from))
		d.Rows = append(d.Rows, timeRow{
			Name: "waits for its turn", Label: text,
			Bars: []timeBar{bar(from, *start, "pause", "waits for its turn: "+text)},
		})
	}
	type edge struct {
		at   time.Time
		more int
	}
	var edges []edge
	call := func(row *timeRow, began, ended time.Time, class, title string) {
		row.Bars = append(row.Bars, bar(began, ended, class, title+", "+words.Span(ended.Sub(began))))
		if !ended.After(began) {
			ended = began.Add(1) // shorter than the clock tells
		}
		edges = append(edges, edge{began, 1}, edge{ended, -1})
	}
	for _, stage := range s.Stages {
		for _, step := range stage.Steps {
			h := step.Handler
			if h == nil || h.Started == nil {
				continue
			}
			row := timeRow{Name: words.Last(step.Path), Path: step.Path, Label: words.Took(h.Started, h.Finished)}
			end := to
			if h.Finished != nil {
				end = *h.Finished
			}
			if len(step.Tries) == 0 {
				call(&row, *h.Started, end, h.Outcome, h.Outcome)
			} else {
				row.Bars = append(row.Bars, bar(*h.Started, end, "pause", "waits between attempts"))
				for _, t := range step.Tries {
					ended, class, text := end, h.Outcome, h.Outcome
					if t.Ended != nil {
						ended = *t.Ended
					}
					if t.Error != "" {
						class, text = "failed", t.Error
					}
					call(&row, t.Began, ended, class, "attempt "+words.Number(float64(t.Number))+": "+text)
				}
			}
			d.Rows = append(d.Rows, row)
		}
	}
	whole := words.Span(to.Sub(from))
	for i := range ticks {
		text := words.Span(scale.when(1000 * float64(i) / ticks).Sub(from))
		if text == whole || slices.Contains(d.Ticks, text) {
			text = "" // too short a run to tell them apart
		}
		d.Ticks = append(d.Ticks, text)
	}
	d.Ticks = append(d.Ticks, whole)
	slices.SortFunc(edges, func(a, b edge) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.more - b.more // what ends makes room for what begins
	})
	under := 0
	for _, e := range edges {
		under += e.more
		d.Parallel = max(d.Parallel, under)
	}
	return d
}
