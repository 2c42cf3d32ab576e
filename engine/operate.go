package engine

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/checkpoint"
	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/engine/taskrun"
)

// This file is what operators see of all nodes, and what they do to many runs at
// once.

// A NodeView is a node as people and programs see it.
type NodeView struct {
	Node    int64     `json:"node"` // its number, which is its fencing token
	Name    string    `json:"name"`
	Started time.Time `json:"started"`
	Seen    time.Time `json:"seen"` // when it renewed its lease last
	Alive   bool      `json:"alive"`
	Runs    int       `json:"runs"`   // that it holds
	Bundle  string    `json:"bundle"` // hash of the definition by which it serves new events; empty for one that has only just joined
}

// Nodes lists the nodes that are alive, and those that died lately.
func (e *Engine) Nodes(ctx context.Context) ([]NodeView, error) {
	nodes, err := e.o.Store.Ledger.Nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	out := make([]NodeView, len(nodes))
	for i, n := range nodes {
		out[i] = NodeView{Node: n.Node, Name: n.Name, Started: n.Started, Seen: n.Seen, Alive: n.Alive, Runs: n.Runs, Bundle: n.Bundle}
	}
	return out, nil
}

// An AuditView is a change that an operator made, as people and programs see it.
type AuditView struct {
	Revision int64     `json:"revision"`
	Changed  time.Time `json:"changed"`
	By       string    `json:"by"`
	Reason   string    `json:"reason"`
	Kind     string    `json:"kind"` // config, control, definition, fallback, run or token
	Name     string    `json:"name"` // of the setting, service or token, the path of the control or handler, the id of the run; empty for a definition
	Before   any       `json:"before"`
	After    any       `json:"after"`
	Hash     string    `json:"hash"`
}

// Audit reads who changed what, the last change first.
func (e *Engine) Audit(ctx context.Context, f store.AuditFilter) ([]AuditView, error) {
	list, err := e.o.Store.Audits.Audit(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("read the audit: %w", err)
	}
	out := make([]AuditView, len(list))
	for i, a := range list {
		v := AuditView{
			Revision: a.Revision, Changed: a.Changed, By: a.By.Name, Reason: a.By.Reason, Kind: a.Kind, Name: a.Name,
			Hash: hex.EncodeToString(a.Hash),
		}
		if len(a.Before) > 0 {
			if v.Before, err = datum.ParseJSON(a.Before); err != nil {
				return nil, fmt.Errorf("read audit %d: before: %w", a.Revision, err)
			}
		}
		if v.After, err = datum.ParseJSON(a.After); err != nil {
			return nil, fmt.Errorf("read audit %d: after: %w", a.Revision, err)
		}
		out[i] = v
	}
	return out, nil
}

// An AuditReport tells whether the audit is as it was written.
type AuditReport struct {
	Whole   bool               `json:"whole"`
	Chains  []store.AuditChain `json:"chains"`
	Missing []string           `json:"missing"`
}

// VerifyAudit looks whether the audit is as it was written, and holds hashes that were
// kept elsewhere.
func (e *Engine) VerifyAudit(ctx context.Context, kept []string) (AuditReport, error) {
	chains, err := e.o.Store.Audits.VerifyAudit(ctx, kept)
	if err != nil {
		return AuditReport{}, fmt.Errorf("verify the audit: %w", err)
	}
	r := AuditReport{Chains: chains, Missing: append([]string{}, kept...)}
	whole := true
	for _, c := range chains {
		whole = whole && c.Break == nil
		r.Missing = slices.DeleteFunc(r.Missing, func(hash string) bool { return slices.Contains(c.Holds, hash) })
	}
	r.Whole = whole && len(r.Missing) == 0
	return r, nil
}

// A RunsPreview tells which runs a filter chooses.
type RunsPreview struct {
	Preview bool                 `json:"preview"` // true
	Total   int                  `json:"total"`
	Groups  []store.RunCount     `json:"groups"` // of all of them
	Runs    []checkpoint.RunView `json:"runs"`   // the first ten accepted
}

// previewed is how many runs a preview shows.
const previewed = 10

// Preview tells which runs a filter chooses.
func (e *Engine) Preview(ctx context.Context, f store.RunFilter) (RunsPreview, error) {
	p := RunsPreview{Preview: true, Groups: []store.RunCount{}}
	groups, err := e.o.Store.Runs.Count(ctx, f)
	if err != nil {
		return p, fmt.Errorf("count runs: %w", err)
	}
	for _, g := range groups {
		p.Groups = append(p.Groups, g)
		p.Total += g.Runs
	}
	f.Oldest, f.Limit, f.Cursor = true, previewed, ""
	p.Runs, _, err = e.List(ctx, f)
	return p, err
}

// A RunsDone tells what was done to a page of runs.
type RunsDone struct {
	Preview bool    `json:"preview"`  // false
	Done    int     `json:"done"`     // runs that were retried or cancelled
	MovedOn int     `json:"moved_on"` // runs that could not be, or not any more
	Next    *string `json:"next"`     // the cursor of the rest; null at the end
}

// RetryAll retries a page of the runs that a filter chooses, failed ones unless
// it says otherwise, the first accepted first. A walk by cursor meets each run once, even one that fails
// again, and may be repeated from the beginning: a run that goes on already is
// left alone.
func (e *Engine) RetryAll(ctx context.Context, f store.RunFilter, by store.Actor) (RunsDone, error) {
	f.Status = cmp.Or(f.Status, model.Failed)
	return e.each(ctx, f, func(ctx context.Context, id string) error { return e.o.Store.Runs.Retry(ctx, id, by) })
}

// CancelAll cancels the runs of a page, as RetryAll retries them.
func (e *Engine) CancelAll(ctx context.Context, f store.RunFilter, by store.Actor) (RunsDone, error) {
	f.Live = true
	return e.each(ctx, f, func(ctx context.Context, id string) error { return e.cancel(ctx, id, by) })
}

// AbandonAll ends the runs of a page as they are; see [Engine.Abandon].
func (e *Engine) AbandonAll(ctx context.Context, f store.RunFilter, by store.Actor) (RunsDone, error) {
	f.Live = true
	return e.each(ctx, f, func(ctx context.Context, id string) error { return e.abandon(ctx, id, by) })
}

// MakeUpAll lets the runs of a page that left a handler out do it after all, the first accepted
// first: with the key of the call that was not made. The filter names the handler.
func (e *Engine) MakeUpAll(ctx context.Context, f store.RunFilter, by store.Actor) (RunsDone, error) {
	path := f.LeftOut
	return e.each(ctx, f, func(ctx context.Context, id string) error { return e.makeUp(ctx, id, path, by) })
}

// makeUp lets a run do a handler that it had left out.
func (e *Engine) makeUp(ctx context.Context, id, path string, by store.Actor) error {
	r, err := e.o.Store.Runs.Run(ctx, id)
	if err != nil {
		return err
	}
	if r.Status != model.Succeeded {
		return store.ErrConflict
	}
	def, err := e.library.Get(ctx, r.Bundle)
	if errors.Is(err, definitions.ErrUnusable) || err == nil && def.ByID[r.Pipeline] == nil {
		return store.ErrConflict
	}
	if err != nil {
		return err
	}
	checkpoint, err := core.MakeUp(def.ByID[r.Pipeline], r.Checkpoint, r.Generation, path)
	switch {
	case errors.Is(err, core.ErrNotLeftOut):
		return fmt.Errorf("%w: %w", err, store.ErrConflict)
	case err != nil:
		return err
	}
	return e.o.Store.Runs.MakeUp(ctx, store.MakeUp{
		Run: id, Path: path, Version: r.Version, Checkpoint: checkpoint,
		Priority: r.Event.Priority,
	},
		by)
}

// each does something to the runs of a page.
func (e *Engine) each(ctx context.Context, f store.RunFilter, do func(context.Context, string) error) (RunsDone, error) {
	f.Oldest = true
	records, next, err := e.list(ctx, f)
	if err != nil {
		return RunsDone{}, err
	}
	var out RunsDone
	if next != "" {
		out.Next = &next
	}
	for _, r := range records {
		switch err := do(ctx, r.ID); {
		case err == nil:
			out.Done++
		case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrUndoing),
			errors.Is(err, core.ErrNoMakeUp):
			out.MovedOn++
		default:
			return RunsDone{}, fmt.Errorf("run %s: %w", r.ID, err)
		}
	}
	if n := e.node.Load(); n != nil {
		n.nudge()
	}
	return out, nil
}

// SetQueueMode lets set say what a type of tasks does from now on, and writes down by
// whom. The queue may be in another store, so one transaction cannot hold both: the
// record comes first, and without it nothing changes. A change that fails afterwards
// has a second record, which says so.
func (e *Engine) SetQueueMode(ctx context.Context, taskType string, mode store.TaskMode, by store.Actor, set func() error) error {
	record := func(ctx context.Context, after string) error {
		_, err := e.o.Store.Documents.WriteDocuments(ctx, 0, nil,
			[]store.Audited{{Kind: store.AuditQueue, Name: taskType, By: by, After: store.AuditText(after)}})
		return err
	}
	if err := record(ctx, string(mode)); err != nil {
		return fmt.Errorf("%s is not made %s, for the audit cannot be written: %w", taskType, mode, err)
	}
	failed := set()
	if failed == nil {
		return nil
	}
	// The caller may be gone by now, which is often why it failed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clock.StoreTimeout)
	defer cancel()
	return errors.Join(failed, record(ctx, fmt.Sprintf("%s failed: %v", mode, failed)))
}

// ServeTasks runs the tasks of the pipelines that have a queue section and stages,
// until ctx ends. Runs under way go on, and whoever takes their tasks next finds them.
func (e *Engine) ServeTasks(ctx context.Context, db *store.TaskStore) {
	server := &taskrun.Server{Runs: e, Tasks: db, Log: e.log, Name: e.o.Name, Lease: e.o.Lease, Submit: e.submitOne}
	server.Serve(ctx)
}
