package ui

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"procaas/engine/api/ui/drawing"
	"procaas/engine/api/ui/words"
	"procaas/engine/checkpoint"
	"procaas/engine/explain"
	"procaas/engine/records"
	"procaas/engine/store"
	"procaas/engine/tracing"
)

// Runs reads runs and the keys that they are of.
type Runs interface {
	RerunAs(ctx context.Context, run checkpoint.RunView) (string, error)
	OriginOf(ctx context.Context, e checkpoint.EventView) string
	RunByID(ctx context.Context, id string) (checkpoint.RunView, error)
	Story(ctx context.Context, run string) (explain.Story, error)
	Explain(ctx context.Context, run, path string) (explain.Explanation, error)
	List(ctx context.Context, f store.RunFilter) ([]checkpoint.RunView, string, error)
	Preview(ctx context.Context, f store.RunFilter) (records.RunsPreview, error)
	Entity(ctx context.Context, flow, key string) (checkpoint.EntityView, error)
}

type runData struct {
	Story explain.Story
	Run   checkpoint.RunView // of the story
	drawing.Timeline
	Took    string
	Graph   *drawing.Graph // nil when the definition has lost its pipeline
	May     bool           // the reader may retry and cancel it
	MayAll  bool           // and run all of it again
	Trace   string         // the address of its trace; empty for none
	Stages  []stages
	Task    *task // the event that it waits for; nil for none
	Why     cause // why it failed, or what it waits for
	History []drawing.Happening
}

// runPages are the pages of runs and of the keys that they are of.
type runPages struct{ *Console }

func (c runPages) run(w http.ResponseWriter, r *http.Request) error {
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
func (c runPages) story(ctx context.Context, id string) (explain.Story, error) {
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

func (c runPages) runData(ctx context.Context, id string) (d runData, err error) {
	if d.Story, err = c.story(ctx, id); err != nil {
		return d, err
	}
	d.Run = d.Story.Run
	d.Run.Event.Origin = c.o.Engine.OriginOf(ctx, d.Run.Event)
	d.Task = c.taskOf(d.Run)
	d.Why, d.History = causeOf(d.Run), drawing.Happenings(d.Story)
	d.Took = words.Took(&d.Run.Accepted, d.Run.Finished)
	if d.Run.Status.Ended() {
		if d.Run.RerunAs, err = c.o.Engine.RerunAs(ctx, d.Run); err != nil {
			return d, err
		}
	}
	d.Timeline, d.Stages = drawing.NewTimeline(d.Story, time.Now()), foldStages(d.Story)
	for _, v := range c.plans() {
		if v.Pipeline == d.Run.Pipeline {
			g := drawing.NewGraph(v, d.asItWent())
			if last := d.Stages[len(d.Stages)-1]; last.Folded {
				g.Fold(len(last.Stages))
			}
			d.Graph = &g
		}
	}
	return d, nil
}

// stages are shown together: those that the run has reached, and then, folded, those that it ended before.
type stages struct {
	Folded bool
	Stages []explain.StoryStage
}

// foldStages takes the stages apart. Handlers that are not reached are absent.
func foldStages(s explain.Story) (all []stages) {
	n := len(s.Stages)
	for n > 0 && s.Run.Status.Ended() && !slices.ContainsFunc(s.Stages[n-1].Steps,
		func(step explain.StoryStep) bool { return step.Outcome != "absent" }) {
		n--
	}
	all = []stages{{Stages: s.Stages[:n]}}
	if n < len(s.Stages) {
		all = append(all, stages{true, s.Stages[n:]})
	}
	return all
}

// asItWent paints handlers by what became of them in the run.
func (d *runData) asItWent() func(*drawing.Box) {
	steps := map[string]explain.StoryStep{}
	for _, stage := range d.Story.Stages {
		for _, s := range stage.Steps {
			steps[s.Path] = s
		}
	}
	return func(b *drawing.Box) {
		s, known := steps[b.Step.Path]
		b.Href = "#" + b.Step.Path
		b.Class = s.Outcome
		b.Line = s.Outcome
		b.Title = s.Summary
		if !known || s.Outcome == "absent" {
			b.Class, b.Line = "absent", "not reached"
		}
		if h := s.Handler; h != nil && h.Started != nil {
			b.Line += " · " + words.Took(h.Started, h.Finished)
			if h.Attempts > 1 {
				b.Badges = words.Number(float64(h.Attempts)) + " attempts"
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

type whyData struct {
	Why explain.Explanation
}

// why tells why a handler ran in a run, or did not.
func (c runPages) why(w http.ResponseWriter, r *http.Request) error {
	x, err := c.o.Engine.Explain(r.Context(), r.PathValue("id"), r.PathValue("path"))
	if err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "why", "Why "+x.Path, whyData{x})
	return nil
}
