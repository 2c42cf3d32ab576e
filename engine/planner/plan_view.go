package planner

import (
	"slices"
	"time"

	"procaas/dsl/tree"
)

// A PlanView is a plan in the form for programs.
type PlanView struct {
	Pipeline string   `json:"pipeline"`       // its id
	Flow     string   `json:"flow,omitempty"` // empty if the pipeline is its own flow
	On       []string `json:"on"`             // types of events; empty if it is only called
	Deadline string   `json:"deadline,omitempty"`
	Target   string   `json:"target,omitempty"`
	Longest  string   `json:"longest"` // longest time of a run, or unbounded: see [tree.Longest]

	// Retention is how long ended runs are kept; empty for the retention of the server.
	Retention string `json:"retention,omitempty"`

	Stages []StageView `json:"stages"` // in the order in which they run

	Sources []SourceView `json:"sources,omitempty"` // what brings in its events, besides callers and triggers
	Notify  []NotifyView `json:"notify,omitempty"`  // who hears how a run ends
}

// A SourceView is a declaration of an add-on that brings in events, such as a webhook.
type SourceView struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	From string `json:"from"` // where they come from, for people
	At   string `json:"at"`   // file:line:column
}

// A NotifyView is a service that hears how runs end.
type NotifyView struct {
	Pipeline string   `json:"pipeline"` // that tells it
	On       []string `json:"on"`       // ends
	Service  string   `json:"service"`
	Path     string   `json:"path"` // of its address
}

// A StageView is a stage of a [PlanView].
type StageView struct {
	ID       string       `json:"id"`
	Final    bool         `json:"final,omitempty"`    // it is that of finally, which runs however the run ends
	Enabled  string       `json:"enabled,omitempty"`  // condition, as written
	ForEach  string       `json:"for_each,omitempty"` // list whose elements repeat the stage, as written
	Parallel int          `json:"parallel,omitempty"` // elements in flight at once
	State    []string     `json:"state,omitempty"`    // names of the shared state of one element
	Writes   []string     `json:"writes,omitempty"`   // paths that are set after all elements
	Deadline string       `json:"deadline,omitempty"`
	Target   string       `json:"target,omitempty"`
	Longest  string       `json:"longest"` // longest time, or unbounded
	Branches []BranchView `json:"branches,omitempty"`
	Handlers []StepView   `json:"handlers"` // including those of the branches
}

// A BranchView is a branch of a stage.
type BranchView struct {
	Number int    `json:"number"` // from 1
	When   string `json:"when"`   // as written; empty for the branch that is taken if no other one is
}

// A StepView is a handler of a [PlanView].
type StepView struct {
	ID       string     `json:"id"`
	Path     string     `json:"path"`
	Branch   int        `json:"branch,omitempty"` // its branch; 0 for none
	Type     string     `json:"type"`
	Awaits   []string   `json:"awaits,omitempty"`     // types of events, one of which it waits for
	Keeps    string     `json:"keeps,omitempty"`      // how long such events are kept that come before the run
	Undo     string     `json:"compensate,omitempty"` // type of its compensation
	Calls    string     `json:"calls,omitempty"`      // the pipeline that it calls
	ForEach  string     `json:"for_each,omitempty"`   // list, as written
	Parallel int        `json:"parallel,omitempty"`   // items in flight at once
	Critical bool       `json:"critical"`
	Detached bool       `json:"detached,omitempty"`    // the next stage does not wait for it
	Live     []string   `json:"live,omitempty"`        // its durations that settings of operators decide
	Limit    string     `json:"rate_limit,omitempty"`  // at most so many calls
	Slow     string     `json:"slower_than,omitempty"` // calls that take longer count as failures for its fallback
	Auth     string     `json:"auth,omitempty"`        // how it proves to its service who it is, such as oauth2
	Cert     string     `json:"cert,omitempty"`        // file with the certificate that it shows to its service
	CA       string     `json:"ca,omitempty"`          // file with the issuers that it trusts for its service
	Deadline string     `json:"deadline,omitempty"`    // including the default of non-critical requests
	Longest  string     `json:"longest"`               // longest time of all its attempts, or unbounded
	Owner    string     `json:"owner,omitempty"`
	At       string     `json:"at"`                 // file:line:column
	Reads    []string   `json:"reads"`              // paths, each once
	Writes   []string   `json:"writes"`             // paths, each once
	Touches  []string   `json:"touches"`            // each once
	OnError  []string   `json:"on_error,omitempty"` // the rules in order, such as "404: continue"
	Failure  string     `json:"failure"`            // what follows if it fails and no rule says otherwise
	Undone   string     `json:"undone,omitempty"`   // how it is undone, and what follows if that fails; empty for nothing to undo
	After    []EdgeView `json:"after"`              // empty: it starts with the stage. Implied ones only if that has up to 150 handlers
}

// An EdgeView is what a handler of a [PlanView] waits for.
type EdgeView struct {
	Handler string `json:"handler"` // the id of the earlier handler
	Why     string `json:"why"`
	From    string `json:"from"`    // the place in the earlier handler, file:line:column
	To      string `json:"to"`      // the place in the later one
	Implied bool   `json:"implied"` // other edges of the stage imply it
}

// View returns the view of the plan.
func (p *Plan) View() PlanView {
	v := PlanView{
		Pipeline: p.Pipeline.ID, Flow: p.Pipeline.Flow, On: p.Pipeline.On, Stages: []StageView{},
		Deadline: durationText(p.Pipeline.Deadline), Target: durationText(p.Pipeline.Target), Longest: p.Longest().String(),
		Retention: durationText(p.Pipeline.Retention),
	}
	switch {
	case p.Pipeline.IsCalled():
		v.On = []string{}
	case len(v.On) == 0:
		v.On = []string{p.Pipeline.ID}
	}
	for _, stage := range p.Stages {
		sv := StageView{
			ID: stage.ID, Final: stage.Declared.Final, Enabled: sourceText(stage.Declared.Enabled), Handlers: []StepView{},
			Deadline: durationText(stage.Declared.Deadline), Target: durationText(stage.Declared.Target), Longest: stage.Longest().String(),
		}
		for _, b := range stage.Declared.Choose {
			sv.Branches = append(sv.Branches, BranchView{Number: b.Number(), When: sourceText(b.When)})
		}
		if s := stage.Loop(); s != nil {
			sv.ForEach, sv.Parallel = sourceText(s.Handler.ForEach.Items), s.Parallel
			for _, k := range stage.Declared.SharedState.Keys() {
				sv.State = append(sv.State, k.Name)
			}
			for _, w := range s.Writes {
				sv.Writes = append(sv.Writes, w.Path.String())
			}
		}
		for _, s := range stage.Handlers() {
			hv := s.view(len(stage.Handlers()) <= maxAllEdges)
			hv.Failure = p.failure(stage, s)
			hv.Undone = undone(stage, s)
			sv.Handlers = append(sv.Handlers, hv)
		}
		v.Stages = append(v.Stages, sv)
	}
	p.Bundle.EachDeclaration(func(x tree.Declaration) {
		if x.Event != "" && slices.Contains(v.On, x.Event) {
			v.Sources = append(v.Sources, SourceView{Kind: x.Kind, ID: x.ID, From: x.From, At: x.At.String()})
		}
	})
	for _, n := range p.Notifications() {
		v.Notify = append(v.Notify, NotifyView{Pipeline: n.Sender().ID, On: n.On, Service: n.Service, Path: n.Path})
	}
	return v
}

func (s *Step) view(all bool) StepView {
	h := s.Handler
	v := StepView{
		ID: h.ID, Path: s.Path, Type: h.Type, Critical: h.IsCritical(), Detached: h.Detached, Owner: h.Owner, At: h.Span.String(),
		Reads: []string{}, Writes: []string{}, Touches: unique(s.Touches), After: []EdgeView{},
		Deadline: durationText(s.Deadline), Longest: s.Longest().String(),
	}
	for _, r := range s.Reads {
		v.Reads = append(v.Reads, r.Path.String())
	}
	for _, w := range s.Writes {
		v.Writes = append(v.Writes, w.Path.String())
	}
	v.Reads, v.Writes = unique(v.Reads), unique(v.Writes)
	if h.Await != nil {
		v.Awaits = h.Await.Event
		if h.Await.Buffered {
			v.Keeps = durationText(h.Await.MaxAge)
		}
	}
	if h.Compensate != nil {
		v.Undo = h.Compensate.Type
	}
	if s.Service != nil && !h.Body.Get("service").IsNull() {
		v.Auth = s.Service.Auth.Kind()
		if t := s.Service.TLS; t != nil {
			v.Cert, v.CA = t.Cert, t.CA
		}
	}
	v.Live = h.Live.Texts()
	if l := h.RateLimit; l != nil {
		v.Limit = l.Text()
	}
	if f := s.Fallback(); f != nil {
		v.Slow = durationText(f.SlowerThan)
	}
	if h.Call != nil {
		v.Calls = h.Call.Pipeline
	}
	if h.ForEach != nil {
		v.ForEach, v.Parallel = sourceText(h.ForEach.Items), s.Parallel
	}
	if h.Branch != nil {
		v.Branch = h.Branch.Number()
	}
	for _, rule := range h.OnError {
		v.OnError = append(v.OnError, ruleText(h, rule))
	}
	for _, e := range s.edges(all) {
		r := e.Reason()
		v.After = append(v.After, EdgeView{
			Handler: e.From.Handler.ID, Why: r.Why, From: r.FromSpan.String(), To: r.ToSpan.String(), Implied: s.Implied(e),
		})
	}
	return v
}

// maxAllEdges limits the handlers of a stage whose view has all edges. The number of edges grows with the square of
// the number of handlers. Those of larger stages have the edges that no others imply.
const maxAllEdges = 150

// edges returns all edges to s, or those that no others imply.
func (s *Step) edges(all bool) []Edge {
	if all {
		return s.After()
	}
	return s.Direct()
}

// Direct lists the edges to s that no others imply, in the order of declaration.
func (s *Step) Direct() []Edge {
	var out []Edge
	for _, earlier := range slices.Backward(s.direct) {
		out = append(out, Edge{From: earlier, To: s})
	}
	return out
}

// durationText formats a duration; empty for none.
func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return tree.Longest{Time: d}.String()
}
