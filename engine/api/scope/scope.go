// Package scope limits what the bearer of a token that is bound to paths may read. Such a token
// reads the pipelines of its paths as a whole, because a run shows all its handlers.
package scope

import (
	"context"
	"slices"

	"procaas/dsl/tree"
	"procaas/engine/checkpoint"
	"procaas/engine/credentials"
	"procaas/engine/guard"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// mostLooked bounds the pages of a store that one call looks through for what its caller may read.
const mostLooked = 20

// List reads a page of runs with read, without those that g may not read. It may have fewer runs
// than the filter asks for, although there are more.
func List(
	ctx context.Context, g credentials.Grant, read func(context.Context, store.RunFilter) ([]checkpoint.RunView, string, error), f store.RunFilter,
) (found []checkpoint.RunView, next string, err error) {
	only := g.Pipelines()
	switch {
	case len(only) == 0:
		return read(ctx, f)
	case f.Pipeline != "" && !g.Reads(f.Pipeline):
		return nil, "", nil
	case f.Pipeline == "" && len(only) == 1:
		f.Pipeline = only[0]
	}
	if f.Pipeline != "" {
		return read(ctx, f)
	}
	limit := f.Limit
	for range mostLooked {
		f.Limit = limit - len(found)
		page, cursor, err := read(ctx, f)
		if err != nil {
			return nil, "", err
		}
		for i := range page {
			if g.Reads(page[i].Pipeline) {
				found = append(found, page[i])
			}
		}
		f.Cursor, next = cursor, cursor
		if next == "" || len(found) == limit {
			break
		}
	}
	return found, next, nil
}

// Entity removes runs that g may not read. ok is false if g may read none of the pipelines of the
// flow, with which these share the state.
func Entity(g credentials.Grant, b *tree.Bundle, e checkpoint.EntityView) (_ checkpoint.EntityView, ok bool) {
	if !g.Bound() {
		return e, true
	}
	of := func(p *tree.Pipeline) bool { return p.Flow == e.Flow && g.Reads(p.ID) }
	if !slices.ContainsFunc(b.Pipelines, of) {
		return checkpoint.EntityView{}, false
	}
	e.Runs = slices.DeleteFunc(slices.Clone(e.Runs), func(r checkpoint.RunView) bool { return !g.Reads(r.Pipeline) })
	return e, true
}

// Handlers returns the handlers that g may read.
func Handlers(g credentials.Grant, all []stats.HandlerInfo) []stats.HandlerInfo {
	return readable(g, all, func(h *stats.HandlerInfo) string { return credentials.PipelineOf(h.Path) })
}

// Durations returns those of the pipelines that g may read.
func Durations(g credentials.Grant, all []stats.DurationView) []stats.DurationView {
	return readable(g, all, func(d *stats.DurationView) string { return credentials.PipelineOf(d.Path) })
}

// Pipelines returns the pipelines that g may read.
func Pipelines(g credentials.Grant, all []stats.PipelineInfo) []stats.PipelineInfo {
	return readable(g, all, func(p *stats.PipelineInfo) string { return p.Pipeline })
}

// Reads reports whether g may read the path of a pipeline, stage or handler. Only a grant that is bound to no path reads what belongs
// to no pipeline.
func Reads(g credentials.Grant, path string) bool {
	return !g.Bound() || g.Reads(credentials.PipelineOf(path))
}

// SlowRuns returns those of the pipelines that g may read.
func SlowRuns(g credentials.Grant, all []stats.SlowRun) []stats.SlowRun {
	return readable(g, all, func(r *stats.SlowRun) string { return r.Pipeline })
}

// Controls returns the controls of the pipelines that g may read, and of the triggers whose events these run. steeredBy
// lists the pipelines of the path of a trigger.
func Controls(g credentials.Grant, all []guard.ControlView, steeredBy func(path string) []string) []guard.ControlView {
	if !g.Bound() {
		return all
	}
	found := make([]guard.ControlView, 0, len(all))
	for i := range all {
		if g.Reads(credentials.PipelineOf(all[i].Path)) || slices.ContainsFunc(steeredBy(all[i].Path), g.Reads) {
			found = append(found, all[i])
		}
	}
	return found
}

// Backlog removes counts of other pipelines and tokens. The sums of all runs stay.
func Backlog(g credentials.Grant, v stats.BacklogView) stats.BacklogView {
	if !g.Bound() {
		return v
	}
	v.Parked = readable(g, v.Parked, func(p *stats.ParkedRuns) string { return p.Pipeline })
	v.Behind = readable(g, v.Behind, func(p *stats.BehindRuns) string { return p.Pipeline })
	v.Refused = nil
	return v
}

// readable returns the items whose name g may read.
func readable[T any](g credentials.Grant, all []T, name func(*T) string) []T {
	if !g.Bound() {
		return all
	}
	found := make([]T, 0, len(all))
	for i := range all {
		if g.Reads(name(&all[i])) {
			found = append(found, all[i])
		}
	}
	return found
}

// Audited reports whether g may read an audit record: its own, and those of the controls, handlers,
// queues and runs of its pipelines.
func Audited(g credentials.Grant, a *records.AuditView) bool {
	if !g.Bound() || a.By == g.Name {
		return true
	}
	switch a.Kind {
	case store.AuditControl, store.AuditFallback:
		return g.Reads(credentials.PipelineOf(a.Name))
	case store.AuditQueue:
		return g.Reads(a.Name)
	case store.AuditRun:
		after, _ := a.After.(map[string]any)
		pipeline, _ := after["pipeline"].(string)
		return g.Reads(pipeline)
	}
	return false
}

// Audit reads records with read, without those that g may not read.
func Audit(
	ctx context.Context, g credentials.Grant, read func(context.Context, store.AuditFilter) ([]records.AuditView, error), f store.AuditFilter,
) (found []records.AuditView, err error) {
	if !g.Bound() {
		return read(ctx, f)
	}
	for range mostLooked {
		page, err := read(ctx, f)
		if err != nil {
			return nil, err
		}
		for i := range page {
			if Audited(g, &page[i]) && len(found) < f.Limit {
				found = append(found, page[i])
			}
		}
		if len(page) < f.Limit || len(found) == f.Limit {
			break
		}
		f.Before = page[len(page)-1].Revision
	}
	return found, nil
}
