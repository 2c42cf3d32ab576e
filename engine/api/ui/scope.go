package ui

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"procaas/engine/api/scope"
	"procaas/engine/canary"
	"procaas/engine/checkpoint"
	"procaas/engine/credentials"
	"procaas/engine/explain"
	"procaas/engine/guard"
	"procaas/engine/planner"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/store"
	"procaas/engine/triggers"
)

// This file limits the pages of people whose token is bound to paths.

// boundPages are the pages that such people see, with what is below them. The others show the data
// of all pipelines, and cannot leave a part of it out.
var boundPages = []string{
	Root + "pipelines/", Root + "handlers/", Root + "runs", Root + "keys/", Root + "queue", Root + "audit", Root + "costs", Root + "data", Root + "playground",
	Root + "controls/", Root + "triggers", Root + "static/", DocsRoot, SubmitPage, SignInPage, SignOutPage,
}

// scopedTo returns the console as the bearer of a grant sees it. The error refuses the page.
func (c *Console) scopedTo(g credentials.Grant, r *http.Request) (*Console, error) {
	allowed := r.URL.Path == Overview
	for _, page := range boundPages {
		allowed = allowed || r.URL.Path == page || strings.HasPrefix(r.URL.Path, strings.TrimSuffix(page, "/")+"/")
	}
	if path := r.FormValue("handler"); r.URL.Path == Root+"data" {
		allowed = path != "" && g.Reads(credentials.PipelineOf(path))
	}
	if !allowed {
		return nil, &Refused{http.StatusForbidden, "You are signed in as " + g.Name + ". Your token is for " + strings.Join(g.Paths, ", ") +
			", and this page shows data of all pipelines."}
	}
	of := *c
	e := scopedEngine{c.o.Engine, g}
	of.o.Engine = Engine{Definition: e, Node: e, Runs: e, Steering: e, Switches: e, Firing: e, Changes: e, History: e}
	of.mux = of.routes()
	return &of, nil
}

// A scopedEngine reads only what a grant may read.
type scopedEngine struct {
	Engine

	g credentials.Grant
}

// Plans implements [Definition].
func (e scopedEngine) Plans() (found []*planner.Plan) {
	for _, p := range e.Engine.Plans() {
		if e.g.Reads(p.Pipeline.ID) {
			found = append(found, p)
		}
	}
	return found
}

// Costs implements [Node].
func (e scopedEngine) Costs(ctx context.Context, by string, days int, reads func(path string) bool) ([]stats.Cost, error) {
	return e.Engine.Costs(ctx, by, days, func(path string) bool { return scope.Reads(e.g, path) && reads(path) })
}

// Handlers implements [Node].
func (e scopedEngine) Handlers() []stats.HandlerInfo { return scope.Handlers(e.g, e.Engine.Handlers()) }

// Active implements [Node].
func (e scopedEngine) Active() []stats.HandlerInfo { return scope.Handlers(e.g, e.Engine.Active()) }

// Durations implements [Node].
func (e scopedEngine) Durations() []stats.DurationView {
	return scope.Durations(e.g, e.Engine.Durations())
}

// Pipelines implements [Node].
func (e scopedEngine) Pipelines() []stats.PipelineInfo {
	return scope.Pipelines(e.g, e.Engine.Pipelines())
}

// Backlog implements [Node].
func (e scopedEngine) Backlog() stats.BacklogView { return scope.Backlog(e.g, e.Engine.Backlog()) }

// Canary implements [History]. What a canary compares is of all pipelines.
func (scopedEngine) Canary() *canary.State { return nil }

// RunByID implements [Runs].
func (e scopedEngine) RunByID(ctx context.Context, id string) (checkpoint.RunView, error) {
	run, err := e.Engine.RunByID(ctx, id)
	if err == nil && !e.g.Reads(run.Pipeline) {
		return checkpoint.RunView{}, store.ErrNotFound
	}
	return run, err
}

// Story implements [Runs].
func (e scopedEngine) Story(ctx context.Context, id string) (explain.Story, error) {
	s, err := e.Engine.Story(ctx, id)
	if err == nil && !e.g.Reads(s.Run.Pipeline) {
		return explain.Story{}, store.ErrNotFound
	}
	return s, err
}

// Explain implements [Runs].
func (e scopedEngine) Explain(ctx context.Context, id, path string) (explain.Explanation, error) {
	if _, err := e.RunByID(ctx, id); err != nil {
		return explain.Explanation{}, err
	}
	return e.Engine.Explain(ctx, id, path)
}

// List implements [Runs].
func (e scopedEngine) List(ctx context.Context, f store.RunFilter) ([]checkpoint.RunView, string, error) {
	return scope.List(ctx, e.g, e.Engine.List, f)
}

// Preview implements [Runs]. It counts only the runs of a pipeline that the filter names.
func (e scopedEngine) Preview(ctx context.Context, f store.RunFilter) (records.RunsPreview, error) {
	if f.Pipeline == "" && f.FailedPath != "" {
		f.Pipeline = credentials.PipelineOf(f.FailedPath)
	}
	if !e.g.Reads(f.Pipeline) {
		return records.RunsPreview{}, nil
	}
	return e.Engine.Preview(ctx, f)
}

// Entity implements [Runs].
func (e scopedEngine) Entity(ctx context.Context, flow, key string) (checkpoint.EntityView, error) {
	v, err := e.Engine.Entity(ctx, flow, key)
	if err != nil {
		return v, err
	}
	v, ok := scope.Entity(e.g, e.Bundle(), v)
	if !ok {
		err = &Refused{http.StatusForbidden, "You are signed in as " + e.g.Name + ". Your token reads no pipeline of the flow " + flow + "."}
	}
	return v, err
}

// Triggers implements [Firing].
func (e scopedEngine) Triggers(ctx context.Context, next int, _ func([]string) bool) ([]triggers.TriggerView, error) {
	return e.Engine.Triggers(ctx, next, func(pipelines []string) bool { return slices.ContainsFunc(pipelines, e.g.Reads) })
}

// Controls implements [Switches].
func (e scopedEngine) Controls(ctx context.Context) ([]guard.ControlView, error) {
	all, err := e.Engine.Controls(ctx)
	return scope.Controls(e.g, all, e.Engine.SteeredBy), err
}

// Audit implements [Changes].
func (e scopedEngine) Audit(ctx context.Context, f store.AuditFilter) ([]records.AuditView, error) {
	return scope.Audit(ctx, e.g, e.Engine.Audit, f)
}
