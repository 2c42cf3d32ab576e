package records

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/checkpoint"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/store"
)

// A Runs is what people see of runs and keys, and what operators do to them. Its exported fields
// are to be set.
type Runs struct {
	Store   store.Store
	Library *definitions.Library
	Node    Node

	// IsOff reports whether the handler at a path is left out at present, and why.
	IsOff func(path string) (reason string, off bool)
}

// A Node is what operators want of this process. Its methods do nothing while the process is no
// member of the cluster.
type Node interface {
	Nudge()                 // makes it look for ready runs
	Cancel(run string)      // ends a run that it works on
	Move(run, order string) // gives an order to a run that it works on: a definition to go on by, or to undo
}

// RunByID reads one run; [store.ErrNotFound] when there is none.
func (o *Runs) RunByID(ctx context.Context, id string) (checkpoint.RunView, error) {
	r, err := o.Store.Runs.Run(ctx, id)
	if err != nil {
		return checkpoint.RunView{}, fmt.Errorf("run %s: %w", id, err)
	}
	v := View(r)
	if v.Status.Ended() {
		v.RerunAs, err = o.RerunAs(ctx, id)
	}
	return v, err
}

// RunStatus returns how far a run is.
func (o *Runs) RunStatus(ctx context.Context, id string) (model.Status, error) {
	r, err := o.Store.Runs.Run(ctx, id)
	return r.Status, err
}

// List reads runs, newest first, and the cursor of the next page.
func (o *Runs) List(ctx context.Context, f store.RunFilter) ([]checkpoint.RunView, string, error) {
	records, next, err := o.list(ctx, f)
	if err != nil {
		return nil, "", err
	}
	return views(records), next, nil
}

// mostListed bounds what is read of the store for one page of runs, in bytes.
const mostListed = 32 << 20

// list reads a page of runs, without what can be large: one with large runs has fewer than
// the filter allows.
func (o *Runs) list(ctx context.Context, f store.RunFilter) ([]store.RunRecord, string, error) {
	f.Brief, f.Bytes = true, mostListed
	records, next, err := o.Store.Runs.List(ctx, f)
	if err != nil {
		return nil, "", fmt.Errorf("list runs: %w", err)
	}
	return records, next, nil
}

// views makes records readable for a list.
func views(found []store.RunRecord) []checkpoint.RunView {
	out := make([]checkpoint.RunView, len(found))
	for i, r := range found {
		out[i] = Brief(r)
	}
	return out
}

// Entity reads a key of a flow; a key of a known flow that no event has reached
// is in its initial state. [store.ErrNotFound] for an unknown flow.
func (o *Runs) Entity(ctx context.Context, flow, key string) (checkpoint.EntityView, error) {
	b := o.Library.Present().Bundle
	known := b.Flow(flow)
	if p := b.Pipeline(flow); known == nil && (p == nil || p.Flow != "") {
		return checkpoint.EntityView{}, fmt.Errorf("flow %s: %w", flow, store.ErrNotFound)
	}
	r, err := o.Store.Runs.Entity(ctx, flow, key)
	if err == nil && len(r.Runs) > 0 {
		// The store gives them without checkpoints, which those who only ask for the
		// state do not need. Without, their views would show no handlers and no state.
		r.Runs, _, err = o.list(ctx, store.RunFilter{Flow: flow, Key: key, Limit: len(r.Runs)})
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return checkpoint.EntityView{}, fmt.Errorf("key %s of flow %s: %w", key, flow, err)
	}
	v := checkpoint.EntityView{
		Flow: flow, Key: key, State: planner.StateOf(known, r.State), SharedState: map[string]any{},
		Blocked: r.Blocked != "", BlockedBy: r.Blocked, Waiting: r.Waiting, Runs: views(r.Runs),
	}
	if known != nil {
		if first, ok := known.SharedState.Literal(); ok {
			if names, ok := first.(map[string]any); ok {
				v.SharedState = names
			}
		}
	}
	if len(r.Shared) == 0 {
		return v, nil
	}
	data, err := datum.ParseJSON(r.Shared)
	if err != nil {
		return checkpoint.EntityView{}, fmt.Errorf("key %s of flow %s: shared state: %w", key, flow, err)
	}
	if names, ok := data.(map[string]any); ok {
		maps.Copy(v.SharedState, names)
	}
	return v, nil
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

// Preview returns which runs a filter chooses.
func (o *Runs) Preview(ctx context.Context, f store.RunFilter) (RunsPreview, error) {
	p := RunsPreview{Preview: true, Groups: []store.RunCount{}}
	groups, err := o.Store.Runs.Count(ctx, f)
	if err != nil {
		return p, fmt.Errorf("count runs: %w", err)
	}
	for _, g := range groups {
		p.Groups = append(p.Groups, g)
		p.Total += g.Runs
	}
	f.Oldest, f.Limit, f.Cursor = true, previewed, ""
	p.Runs, _, err = o.List(ctx, f)
	return p, err
}

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
func (o *Runs) Nodes(ctx context.Context) ([]NodeView, error) {
	nodes, err := o.Store.Ledger.Nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	out := make([]NodeView, len(nodes))
	for i, n := range nodes {
		out[i] = NodeView{Node: n.Node, Name: n.Name, Started: n.Started, Seen: n.Seen, Alive: n.Alive, Runs: n.Runs, Bundle: n.Bundle}
	}
	return out, nil
}
