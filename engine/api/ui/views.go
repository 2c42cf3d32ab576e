package ui

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/engine/api/ui/drawing"
	"procaas/engine/api/ui/guide"
	"procaas/engine/api/ui/seen"
	"procaas/engine/checkpoint"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// plans shows how the pipelines run, in their order.
func (c *Console) plans() []planner.PlanView {
	plans := c.o.Engine.Plans()
	out := make([]planner.PlanView, len(plans))
	for i, p := range plans {
		out[i] = p.View()
	}
	return out
}

type pipelineData struct {
	Plan  planner.PlanView
	Graph drawing.Graph
	Path  string

	Switches []switchForm // of the pipeline, then of its stages
	Took     []stats.DurationView
}

func (c *Console) pipeline(w http.ResponseWriter, r *http.Request) error {
	data, err := c.pipelineData(r.PathValue("id"))
	if err != nil {
		return err
	}
	controls, err := c.o.Engine.Controls(r.Context())
	if err != nil {
		return err
	}
	paths := []string{data.Path}
	for _, s := range data.Plan.Stages {
		paths = append(paths, data.Path+"/"+s.ID)
	}
	data.Switches = c.switches(r, controls, paths...)
	c.show(w, r, http.StatusOK, "pipeline", data.Plan.Pipeline, data)
	return nil
}

func (c *Console) pipelineData(id string) (pipelineData, error) {
	plans := c.plans()
	i := slices.IndexFunc(plans, func(v planner.PlanView) bool { return v.Pipeline == id })
	if i < 0 {
		return pipelineData{}, Unknown("pipeline", id, func() (all []string) {
			for _, p := range plans {
				all = append(all, p.Pipeline)
			}
			return all
		}())
	}
	infos := map[string]stats.HandlerInfo{}
	for _, h := range c.o.Engine.Handlers() {
		infos[h.Path] = h
	}
	took := slices.DeleteFunc(c.o.Engine.Durations(), func(d stats.DurationView) bool { return model.PipelineOf(d.Path) != id })
	return pipelineData{Plan: plans[i], Graph: drawing.NewGraph(plans[i], drawing.AsItIs(infos)), Path: id, Took: took}, nil
}

// Unknown is for pages of what does not exist, and says what may have been meant.
func Unknown(what, name string, known []string) error {
	text := "There is no " + what + " " + strconv.Quote(name) + "."
	if near := diag.Suggest(name, known); near != "" {
		text += " Did you mean " + near + "?"
	}
	return NotFound(text)
}

type handlerData struct {
	Info     stats.HandlerInfo
	Step     planner.StepView
	Source   []sourceLine
	Controls []guard.ControlView // of it and what is above it
	Audit    []records.AuditView
	Failed   []checkpoint.RunView
	Rate     []float64
	Ratio    []float64
	P99      []float64
	Levels   []string // its own path, that of the stage, that of the pipeline
	Switches []switchForm
}

// A sourceLine is a line of the definition.
type sourceLine struct {
	Number int
	Text   string
	Begins bool // the handler begins here
}

func (c *Console) handler(w http.ResponseWriter, r *http.Request) error {
	data, err := c.handlerData(r, r.PathValue("path"))
	if err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "handler", data.Info.Path, data)
	return nil
}

func (c *Console) handlerData(r *http.Request, path string) (d handlerData, err error) {
	ctx := r.Context()
	handlers := c.o.Engine.Handlers()
	i := slices.IndexFunc(handlers, func(h stats.HandlerInfo) bool { return h.Path == path })
	if i < 0 {
		var known []string
		for _, h := range handlers {
			known = append(known, h.Path)
		}
		return d, Unknown("handler", path, known)
	}
	d.Info = handlers[i]
	pipeline, rest, _ := strings.Cut(path, "/")
	stage, _, _ := strings.Cut(rest, "/")
	d.Levels = []string{path, pipeline + "/" + stage, pipeline}
	for _, p := range c.plans() {
		for _, s := range p.Stages {
			for _, step := range s.Handlers {
				if step.Path == path {
					d.Step = step
				}
			}
		}
	}
	d.Source = c.source(d.Info)
	points := c.history.Of(path)
	d.Rate = drawing.Series(points, func(p seen.HandlerPoint) float64 { return p.Rate })
	d.Ratio = drawing.Series(points, func(p seen.HandlerPoint) float64 { return max(0, p.Ratio) })
	d.P99 = drawing.Series(points, func(p seen.HandlerPoint) float64 { return p.P99 })
	if d.Failed, _, err = c.o.Engine.List(ctx, store.RunFilter{FailedPath: path, Limit: 8}); err != nil {
		return d, err
	}
	controls, err := c.o.Engine.Controls(ctx)
	if err != nil {
		return d, err
	}
	for _, v := range guard.Apart(controls, time.Now()) {
		if slices.Contains(d.Levels, v.Path) {
			d.Controls = append(d.Controls, v)
		}
	}
	d.Switches = c.switches(r, controls, d.Levels...)
	d.Audit, err = c.o.Engine.Audit(ctx, store.AuditFilter{Name: path, Limit: 10})
	return d, err
}

// source returns the lines of the definition of a handler: from its first line to the
// next one that is indented no deeper.
func (c *Console) source(h stats.HandlerInfo) (lines []sourceLine) {
	for _, f := range c.o.Engine.Bundle().Files {
		if f.Name != h.File {
			continue
		}
		all := strings.Split(string(f.Data), "\n")
		if h.Line < 1 || h.Line > len(all) {
			return nil
		}
		first := all[h.Line-1]
		depth := len(first) - len(strings.TrimLeft(first, " "))
		for i := h.Line - 1; i < len(all) && len(lines) < 80; i++ {
			text := all[i]
			indent := len(text) - len(strings.TrimLeft(text, " "))
			if i >= h.Line && strings.TrimSpace(text) != "" && indent <= depth {
				break
			}
			lines = append(lines, sourceLine{Number: i + 1, Text: text, Begins: i == h.Line-1})
		}
	}
	return lines
}

type runsData struct {
	Filter  map[string]string
	Runs    []checkpoint.RunView
	Next    string // the address of the next page; empty at the end
	Preview *records.RunsPreview
	Done    *records.RunsDone
	States  []string
	Reason  string // that was given, for a page that goes on
	Bulk    bulk
	May     bool // the reader may retry them
	More    bool // a field is in use that is folded away otherwise

	Pipelines, Flows, Handlers []string // that exist, for who types
}

// filterNames are the fields of the search, as the API calls them.
var filterNames = []string{"pipeline", "flow", "key", "status", "handler", "error", "label", "since", "until", "text", "not_undone"}

// filter reads the search.
func filter(r *http.Request) (f store.RunFilter, given map[string]string, err error) {
	given = map[string]string{}
	for _, name := range filterNames {
		given[name] = strings.TrimSpace(r.FormValue(name))
	}
	if err := model.CheckLabelFilter(given["label"]); err != nil {
		return f, given, &Refused{http.StatusBadRequest, err.Error()}
	}
	f = store.RunFilter{
		Labels: given["label"], Pipeline: given["pipeline"], Flow: given["flow"], Key: given["key"], Status: model.Status(given["status"]),
		FailedPath: given["handler"], Error: given["error"], Limit: 50, Cursor: r.FormValue("cursor"),
	}
	f.NotUndone = given["not_undone"] != ""
	if given["text"] != "" {
		f.Text = eventText(given["text"])
		if given["since"] == "" && given["until"] == "" {
			given["since"] = textSince
		}
	}
	for name, at := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if given[name] == "" {
			continue
		}
		if *at, err = moments(given[name]); err != nil {
			return f, given, &Refused{http.StatusBadRequest, name +
				": want a time such as 2026-01-31T09:00 (UTC), or how long ago, such as 30m; have " + strconv.Quote(given[name])}
		}
	}
	return f, given, nil
}

// The search in events reads all that the other conditions choose, so it is bounded by their time, and by its own.
const (
	textSince = "24h" // unless another time is asked for
	textTime  = 3 * time.Second
)

// eventText is a text as events have it in the store.
func eventText(text string) string {
	return strings.NewReplacer(`": `, `":`, "<", `\u003c`, ">", `\u003e`, "&", `\u0026`).Replace(text)
}

// listRuns lists runs; a search in events ends after its time.
func (c runPages) listRuns(ctx context.Context, f store.RunFilter) ([]checkpoint.RunView, string, error) {
	if f.Text == "" {
		return c.o.Engine.List(ctx, f)
	}
	limited, cancel := context.WithTimeout(ctx, textTime)
	defer cancel()
	runs, next, err := c.o.Engine.List(limited, f)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = &Refused{http.StatusUnprocessableEntity, "The search in events took longer than " + textTime.String() +
			" and was stopped. Give a pipeline, a key or a shorter time."}
	}
	return runs, next, err
}

// moments reads a time, or how long ago it was.
func moments(text string) (time.Time, error) {
	if d, err := datum.ParseDuration(text); err == nil {
		return time.Now().Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, strconv.ErrSyntax
}

func (c runPages) runs(w http.ResponseWriter, r *http.Request) error {
	f, given, err := filter(r)
	if err != nil {
		return err
	}
	data := runsData{Filter: given, States: []string{"waiting", "running", "parked", "succeeded", "failed", "cancelled", "ignored"}}
	var next string
	if data.Runs, next, err = c.listRuns(r.Context(), f); err != nil {
		return err
	}
	data.May = c.may(r, cmp.Or(f.FailedPath, f.Pipeline)) == nil
	data.More = cmp.Or(given["flow"], given["error"], given["label"], given["since"], given["until"], given["text"], given["not_undone"]) != ""
	for _, p := range c.o.Engine.Bundle().Pipelines {
		data.Pipelines = append(data.Pipelines, p.ID)
	}
	for _, f := range c.o.Engine.Bundle().Flows {
		data.Flows = append(data.Flows, f.ID)
	}
	for _, h := range c.o.Engine.Handlers() {
		data.Handlers = append(data.Handlers, h.Path)
	}
	query := r.URL.Query()
	query.Del("cursor")
	if next != "" {
		query.Set("cursor", next)
		data.Next = "?" + query.Encode()
	}
	c.show(w, r, http.StatusOK, "runs", "Runs", data)
	return nil
}

type keyData struct {
	Entity    checkpoint.EntityView
	Automaton *drawing.Automaton // nil for a flow without states
}

func (c runPages) key(w http.ResponseWriter, r *http.Request) error {
	flow, key := r.PathValue("flow"), cmp.Or(r.PathValue("key"), r.FormValue("key"))
	entity, err := c.o.Engine.Entity(r.Context(), flow, key)
	if errors.Is(err, store.ErrNotFound) {
		var known []string
		for _, f := range c.o.Engine.Bundle().Flows {
			known = append(known, f.ID)
		}
		return Unknown("flow", flow, known)
	}
	if err != nil {
		return err
	}
	d := keyData{Entity: entity}
	if f := c.o.Engine.Bundle().Flow(flow); f != nil && f.States != nil {
		drawn := drawing.NewAutomaton(f.States, entity.State)
		d.Automaton = &drawn
	}
	c.show(w, r, http.StatusOK, "key", flow+" "+key, d)
	return nil
}

// Changes tells who changed what, and keeps who has submitted events by hand.
type Changes interface {
	Audit(ctx context.Context, f store.AuditFilter) ([]records.AuditView, error)
	NoteEvent(ctx context.Context, run string, e records.AuditedEvent, by store.Actor) error
}

type auditData struct {
	Changes []records.AuditView
	Kind    string
	Name    string
	By      string
	Kinds   []string
	Next    string
}

func (c *Console) audit(w http.ResponseWriter, r *http.Request) error {
	const page = 50
	before, _ := strconv.ParseInt(r.FormValue("before"), 10, 64) // 0 is the newest
	d := auditData{Kind: r.FormValue("kind"), Name: r.FormValue("name"), By: r.FormValue("by"), Kinds: store.AuditKinds()}
	var err error
	d.Changes, err = c.o.Engine.Audit(r.Context(), store.AuditFilter{Kind: d.Kind, Name: d.Name, By: d.By, Before: before, Limit: page})
	if err != nil {
		return err
	}
	if len(d.Changes) == page {
		q := r.URL.Query()
		q.Set("before", strconv.FormatInt(d.Changes[page-1].Revision, 10))
		d.Next = "?" + q.Encode()
	}
	c.show(w, r, http.StatusOK, "audit", "Audit", d)
	return nil
}

// DocsRoot is where the documentation is.
const DocsRoot = guide.Root

// file reads a file that the documentation links to.
func (o *Options) file(name string) ([]byte, error) {
	if o.Files == nil {
		return nil, fs.ErrNotExist
	}
	return fs.ReadFile(o.Files, name)
}

func (c *Console) docs(w http.ResponseWriter, r *http.Request) error {
	v, found, err := guide.Look(c.o.Engine.Bundle().Language, c.o.file, r.PathValue("page"), r.FormValue("q"))
	if err != nil {
		return err
	}
	if !found {
		return NotFound("There is no such page. The list of pages is at " + DocsRoot + ".")
	}
	c.show(w, r, http.StatusOK, "docs", v.Title, v)
	return nil
}
