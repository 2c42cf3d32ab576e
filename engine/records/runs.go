package records

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/budget"
	"procaas/engine/checkpoint"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/store"
)

// A Runs shows runs and keys to people, and changes runs for operators. The caller sets its
// exported fields.
type Runs struct {
	Store   store.Store
	Library *definitions.Library
	Node    Node
	Memory  *budget.Memory // of this process; nil for no bound
	Now     func() time.Time

	// Erasers remove what add-ons have stored of a key, and ForgetValues what the shadow has shown of runs that are gone.
	Erasers      []store.EraseFunc
	ForgetValues func(ctx context.Context, gone func(run string) (bool, error), record store.Audited) (int, error)

	// Origin says in words where an event came from, if an add-on has submitted it. May be nil.
	Origin func(ctx context.Context, e checkpoint.EventView) string

	// IsOff reports whether the handler at a path is off now, and why.
	IsOff func(path string) (reason string, off bool)
}

// A Node passes operators' orders to this process. Its methods do nothing while the process is not
// a member of the cluster.
type Node interface {
	Number() int64          // of the last membership, or 0
	Nudge()                 // looks for ready runs
	Cancel(run string)      // ends a run that it drives
	Move(run, order string) // orders a run that it drives to move to another definition, or to undo
}

// RunByID reads one run. The error is [store.ErrNotFound] if there is none.
func (o *Runs) RunByID(ctx context.Context, id string) (checkpoint.RunView, error) {
	r, err := o.Store.Runs.Run(ctx, id)
	if err != nil {
		return checkpoint.RunView{}, fmt.Errorf("run %s: %w", id, err)
	}
	v := View(r)
	v.Event.Origin = o.OriginOf(ctx, v.Event)
	if v.Status.Ended() {
		v.RerunAs, err = o.RerunAs(ctx, v)
	}
	return v, err
}

// OriginOf says in words where an event came from, if an add-on has submitted it.
func (o *Runs) OriginOf(ctx context.Context, e checkpoint.EventView) string {
	if o.Origin == nil {
		return ""
	}
	return o.Origin(ctx, e)
}

// RunStatus returns the status of a run.
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

// mostListed bounds the data read from the store for one page of runs, in bytes.
const mostListed = 32 << 20

// listedPart is the part of what one request may hold that a page may have. The rest is for its
// decoded form and its answer, and for pages that are read at the same time. A page holds no memory
// of the budget: a slow reader would hold it until its answer is written, and so keep events out.
const listedPart = 8

// pageBytes returns the bound of a page on this node.
func (o *Runs) pageBytes() int64 {
	if one, ok := o.Memory.One(); ok {
		return min(mostListed, int64(one/listedPart))
	}
	return mostListed
}

// list reads a page of runs without large parts. A page of large runs has fewer runs than the
// filter allows.
func (o *Runs) list(ctx context.Context, f store.RunFilter) ([]store.RunRecord, string, error) {
	f.Brief, f.Bytes = true, o.pageBytes()
	records, next, err := o.Store.Runs.List(ctx, f)
	if err != nil {
		return nil, "", fmt.Errorf("list runs: %w", err)
	}
	return records, next, nil
}

// views returns the views of records for a list.
func views(found []store.RunRecord) []checkpoint.RunView {
	out := make([]checkpoint.RunView, len(found))
	for i, r := range found {
		out[i] = Brief(r)
	}
	return out
}

// Entity reads a key of a flow. If no event has reached the key, it is in its initial state. The
// error is [store.ErrNotFound] if the flow is unknown.
func (o *Runs) Entity(ctx context.Context, flow, key string) (checkpoint.EntityView, error) {
	b := o.Library.Present().Bundle
	known := b.Flow(flow)
	if p := b.Pipeline(flow); known == nil && (p == nil || p.Flow != "") {
		return checkpoint.EntityView{}, fmt.Errorf("flow %s: %w", flow, store.ErrNotFound)
	}
	r, err := o.Store.Runs.Entity(ctx, flow, key)
	if err == nil && len(r.Runs) > 0 {
		// The store returns them without checkpoints, because a caller that asks only for the state
		// does not need them. Without checkpoints, the views would show neither handlers nor state.
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

// A RunsPreview describes the runs that a filter chooses.
type RunsPreview struct {
	Preview bool                 `json:"preview"` // true
	Total   int                  `json:"total"`
	Groups  []store.RunCount     `json:"groups" doc:"The number of runs by pipeline, handler and class of error."`
	Runs    []checkpoint.RunView `json:"runs" doc:"The ten oldest runs."`
}

// previewed is how many runs a preview shows.
const previewed = 10

// Preview describes the runs that a filter chooses.
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

// A NodeView is a node in the form for people and programs.
type NodeView struct {
	Node    int64       `json:"node" doc:"Its number. Each start of a process gets a higher one."`
	Name    string      `json:"name"`
	Started time.Time   `json:"started"`
	Seen    time.Time   `json:"seen" doc:"When it last renewed its lease."`
	Alive   bool        `json:"alive"`
	Runs    int         `json:"runs" doc:"The number of runs that it works on."`
	Bundle  string      `json:"bundle" doc:"The hash of the definition for new events; empty before its first heartbeat."`
	Memory  *MemoryView `json:"memory,omitempty" doc:"How much of its memory it uses. Only of the node that answers; absent for others, and without a limit."`

	// Flags are those that the node has told when it started.
	Flags map[string]string `json:"flags,omitempty" doc:"Flags of procaas serve that nodes should have in common, by their names. Those with addresses are a hash. Absent for earlier releases."`
}

// A MemoryView shows how much of its memory a node uses, in bytes.
type MemoryView struct {
	Limit   int64 `json:"limit" doc:"Bytes that the process may use."`
	Budget  int64 `json:"budget" doc:"Bytes of the limit that runs, replies, requests and pages of the console share."`
	Used    int64 `json:"used" doc:"Bytes of the budget in use."`
	Waiting int   `json:"waiting" doc:"How many runs, replies and requests wait for memory."`
}

// Nodes lists live nodes, and nodes that died recently.
func (o *Runs) Nodes(ctx context.Context) ([]NodeView, error) {
	nodes, err := o.Store.Ledger.Nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	_, told, err := o.flags(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]NodeView, len(nodes))
	for i, n := range nodes {
		out[i] = NodeView{
			Node: n.Node, Name: n.Name, Started: n.Started, Seen: n.Seen, Alive: n.Alive, Runs: n.Runs, Bundle: n.Bundle, Flags: told[n.Name].Flags,
		}
		if n.Alive && n.Node == o.Node.Number() {
			out[i].Memory = memoryOf(o.Memory)
		}
	}
	return out, nil
}

// memoryOf returns nil if there is no bound.
func memoryOf(m *budget.Memory) *MemoryView {
	if m == nil {
		return nil
	}
	u := m.Usage()
	v := &MemoryView{Limit: int64(u.Limit), Budget: int64(u.Budget), Waiting: u.Waiting}
	for _, bytes := range u.Used {
		v.Used += int64(bytes)
	}
	return v
}
