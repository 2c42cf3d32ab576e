package ui

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"procaas/dsl/expr"
	"procaas/engine/checkpoint"
	"procaas/engine/explain"
	"procaas/engine/records"
	"procaas/engine/store"
	"procaas/engine/tracing"
)

// Runs reads runs and the keys that they are of.
type Runs interface {
	RerunAs(ctx context.Context, id string) (string, error)
	RunByID(ctx context.Context, id string) (checkpoint.RunView, error)
	Story(ctx context.Context, run string) (explain.Story, error)
	Explain(ctx context.Context, run, path string) (explain.Explanation, error)
	List(ctx context.Context, f store.RunFilter) ([]checkpoint.RunView, string, error)
	Preview(ctx context.Context, f store.RunFilter) (records.RunsPreview, error)
	Entity(ctx context.Context, flow, key string) (checkpoint.EntityView, error)
}

type runData struct {
	Story    explain.Story
	Run      checkpoint.RunView // of the story
	Rows     []timeRow
	Ticks    []string // below the rows, at even distances
	Parallel int      // calls at the same time, at most
	Took     string
	Graph    *graph // nil when the definition has lost its pipeline
	May      bool   // the reader may retry and cancel it
	MayAll   bool   // and run all of it again
	Trace    string // the address of its trace; empty for none
	Task     *task  // the event that it waits for; nil for none
	Why      cause  // why it failed, or what it waits for
	History  []happening
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

func (c *Console) run(w http.ResponseWriter, r *http.Request) error {
	d, err := c.runData(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	d.MayAll = c.may(r, d.Run.Pipeline) == nil
	d.May = d.MayAll || c.may(r, cmp.Or(d.Run.FailedPath, d.Run.Pipeline)) == nil
	if c.o.TraceURL != "" {
		id := tracing.ID(d.Run.ID, d.Run.Event.Trace[0], d.Run.Event.Trace[1])
		d.Trace = strings.ReplaceAll(c.o.TraceURL, "{trace_id}", id.String())
	}
	c.show(w, r, http.StatusOK, "run", "Run "+d.Run.ID, d)
	return nil
}

// story tells a run.
func (c *Console) story(ctx context.Context, id string) (explain.Story, error) {
	story, err := c.o.Engine.Story(ctx, id)
	if errors.Is(err, explain.ErrNoHandler) {
		// Its definition has lost its pipeline: what became of handlers is known still.
		var run checkpoint.RunView
		if run, err = c.o.Engine.RunByID(ctx, id); err == nil {
			story = plainStory(run)
		}
	}
	return story, err
}

func (c *Console) runData(ctx context.Context, id string) (d runData, err error) {
	if d.Story, err = c.story(ctx, id); err != nil {
		return d, err
	}
	d.Run = d.Story.Run
	d.Task = c.taskOf(d.Run)
	d.Why, d.History = causeOf(d.Run), happenings(d.Story)
	d.Took = took(&d.Run.Accepted, d.Run.Finished)
	if d.Run.Status.Ended() {
		if d.Run.RerunAs, err = c.o.Engine.RerunAs(ctx, id); err != nil {
			return d, err
		}
	}
	d.draw(time.Now())
	for _, v := range c.plans() {
		if v.Pipeline == d.Run.Pipeline {
			g := newGraph(v, d.asItWent())
			d.Graph = &g
		}
	}
	return d, nil
}

// asItWent paints handlers by what became of them in the run.
func (d *runData) asItWent() func(*box) {
	steps := map[string]explain.StoryStep{}
	for _, stage := range d.Story.Stages {
		for _, s := range stage.Steps {
			steps[s.Path] = s
		}
	}
	return func(b *box) {
		s, known := steps[b.Step.Path]
		b.Href, b.Class, b.Line, b.Title = "#"+b.Step.Path, s.Outcome, s.Outcome, s.Summary
		if !known || s.Outcome == "absent" {
			b.Class, b.Line = "absent", "not reached"
		}
		if h := s.Handler; h != nil && h.Started != nil {
			b.Line += " · " + took(h.Started, h.Finished)
			if h.Attempts > 1 {
				b.Badges = number(float64(h.Attempts)) + " attempts"
			}
		}
	}
}

// plainStory returns what the run alone says.
func plainStory(run checkpoint.RunView) explain.Story {
	s := explain.Story{Run: run, Missing: []string{"why handlers ran or not: its definition does not have the pipeline"}}
	for i, h := range run.Handlers {
		_, rest, _ := strings.Cut(h.Path, "/")
		stage, _, _ := strings.Cut(rest, "/")
		if n := len(s.Stages); n == 0 || s.Stages[n-1].ID != stage {
			s.Stages = append(s.Stages, explain.StoryStage{ID: stage})
		}
		last := &s.Stages[len(s.Stages)-1]
		last.Steps = append(last.Steps, explain.StoryStep{
			Path: h.Path, Outcome: h.Outcome, Summary: strings.TrimSpace(h.Error + " " + h.Reason),
			Handler: &run.Handlers[i],
		})
	}
	return s
}

// ticks is how many spaces the time line is divided into.
const ticks = 4

// draw lays the run on a time line, from its acceptance to its end.
func (d *runData) draw(now time.Time) {
	from, to := d.Run.Accepted, now
	if d.Run.Finished != nil {
		to = *d.Run.Finished
	}
	whole := max(to.Sub(from), time.Microsecond)
	bar := func(began, ended time.Time, class, title string) timeBar {
		x := min(998, 1000*max(0, float64(began.Sub(from))/float64(whole)))
		return timeBar{X: x, Width: max(2, min(1000-x, 1000*float64(ended.Sub(began))/float64(whole))), Class: class, Title: title}
	}
	if start := d.Run.Started; start != nil && start.After(from) {
		text := span(start.Sub(from))
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
		row.Bars = append(row.Bars, bar(began, ended, class, title+", "+span(ended.Sub(began))))
		if !ended.After(began) {
			ended = began.Add(1) // shorter than the clock tells
		}
		edges = append(edges, edge{began, 1}, edge{ended, -1})
	}
	for _, stage := range d.Story.Stages {
		for _, step := range stage.Steps {
			h := step.Handler
			if h == nil || h.Started == nil {
				continue
			}
			row := timeRow{Name: lastPart(step.Path), Path: step.Path, Label: took(h.Started, h.Finished)}
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
					call(&row, t.Began, ended, class, "attempt "+number(float64(t.Number))+": "+text)
				}
			}
			d.Rows = append(d.Rows, row)
		}
	}
	for i := range ticks + 1 {
		d.Ticks = append(d.Ticks, span(whole*time.Duration(i)/ticks))
	}
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
}

type whyData struct {
	Why explain.Explanation
}

// why tells why a handler ran in a run, or did not.
func (c *Console) why(w http.ResponseWriter, r *http.Request) error {
	x, err := c.o.Engine.Explain(r.Context(), r.PathValue("id"), r.PathValue("path"))
	if err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "why", "Why "+x.Path, whyData{x})
	return nil
}

// traceText writes what an expression came from.
func traceText(t *expr.Trace) string {
	var b strings.Builder
	if err := expr.WriteTrace(&b, t, false); err != nil {
		return err.Error()
	}
	return b.String()
}

// A diffLine is a line of one or of both texts.
type diffLine struct {
	Class string // del, ins or same
	Sign  string
	Text  string
}

// maxDiff bounds the work of a comparison, in pairs of lines.
const maxDiff = 1 << 18

// compare shows two values line by line: what has gone, what has come, what stays.
func compare(before, after explain.StateValue) (out []diffLine) {
	if before.Gone != "" || after.Gone != "" {
		for _, v := range []struct {
			explain.StateValue
			class, sign string
		}{{before, "del", "-"}, {after, "ins", "+"}} {
			text := v.Gone
			if text == "" {
				text = pretty(v.Value)
			} else {
				text = "(no longer known: " + text + ")"
			}
			for line := range strings.SplitSeq(text, "\n") {
				out = append(out, diffLine{v.class, v.sign, line})
			}
		}
		return out
	}
	a, b := strings.Split(pretty(before.Value), "\n"), strings.Split(pretty(after.Value), "\n")
	if len(a)*len(b) > maxDiff {
		a, b = []string{"(too long to be compared)"}, b[:min(len(b), 100)]
	}
	// same[i][j] is how many lines of a[i:] and b[j:] stay.
	same := make([][]int, len(a)+1)
	for i := range same {
		same[i] = make([]int, len(b)+1)
	}
	for i, v := range slices.Backward(a) {
		for j := len(b) - 1; j >= 0; j-- {
			same[i][j] = max(same[i+1][j], same[i][j+1])
			if v == b[j] {
				same[i][j] = same[i+1][j+1] + 1
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, diffLine{"same", " ", a[i]})
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || same[i+1][j] >= same[i][j+1]):
			out = append(out, diffLine{"del", "-", a[i]})
			i++
		default:
			out = append(out, diffLine{"ins", "+", b[j]})
			j++
		}
	}
	return out
}
