package planner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/engine/model"
)

// A Plan is a pipeline with its dependencies: which handlers of a stage must wait for which others,
// and why. It is immutable.
type Plan struct {
	Bundle   *tree.Bundle // the definition of the pipeline
	Pipeline *tree.Pipeline
	Flow     *tree.Flow // nil if the pipeline has none
	Stages   []*Stage   // in the order in which a run goes through them

	ByPath    map[string]*Step // by path
	Steps     []*Step          // all of them, as declared
	Written   []*Step          // those in the files: repeated stages count as their handlers
	Detached  []*Step          // those that the next stage does not wait for
	byPath    map[string]*Step // includes those of repeated stages
	Shared    []sharedName     // declared by the flow and the pipeline
	MostCalls int              // most calls in flight at once

	Undoes  bool // a handler, or one that it calls, has a compensation
	Bounded bool // it, or a pipeline that it calls, has a deadline

	// Contested says that live settings decide which of several pipelines serves an event.
	Contested bool
}

// A Stage is a stage with its handlers in declared order.
type Stage struct {
	ID    string
	Steps []*Step // a repeated stage has only its Loop

	Declared *tree.Stage
	loop     *Plan // for one element, if the stage is repeated
}

// Handlers lists the handlers of the stage in the files, in declared order.
func (g *Stage) Handlers() []*Step {
	if g.loop != nil {
		return g.loop.Written
	}
	return g.Steps
}

// Loop returns the step for a stage that is repeated for each element of a list. It is
// nil for other stages.
func (g *Stage) Loop() *Step {
	if g.loop == nil {
		return nil
	}
	return g.Steps[0]
}

// A Step is a handler in a plan.
type Step struct {
	Handler *tree.Handler
	Type    tree.Type // zero for a placeholder
	Path    string    // pipeline/stage/handler; a compensation has /compensate appended
	Owner   string    // owner of the handler, or of the pipeline
	Stage   int       // its index in Plan.Stages
	Index   int       // in its stage

	Reads   []datum.Read // of all expressions: enabled, body, result, verify, fallback, on-error
	Writes  []Write      // paths written in any outcome: by its result, the fallback result, and rules of on-error
	Touches []string     // effects outside the shared state
	// Peer is the id of the declared service that its calls reach, or a host. It is empty if there
	// is none, or if only the call itself knows it.
	Peer  string
	After []Edge // what it waits for within its stage; empty: it may start at once

	Position  int // in Plan.order
	Verify    tree.Type
	Retry     tree.Retry    // the policy, with defaults
	Deadline  time.Duration // for all attempts together, with defaults; 0 for none
	Keeps     bool          // another handler may read the response
	Fleeting  []string      // names of the shared state that its conditions read and later handlers write
	StagePath string        // the path of its stage
	Volatile  bool          // begun again, it might be skipped or send something else

	Parallel int  // items of its for-each in flight at once; 1 without one
	Gathers  bool // responses of items are kept, because the result or another handler may read them

	Callee *Plan // plan of the pipeline that it calls, or of one element of a repeated stage; nil for none
	Loops  bool  // it stands for a repeated stage

	Undo   *Step // its compensation; nil for none
	Undoes bool  // it is the compensation of another

	Service *tree.Service // declared service; nil if only the call itself knows it
}

// A Write is a path that a handler sets: a name of the shared state, or its own entry in sources.
type Write struct {
	Path datum.Path // from the root
	Span diag.Span  // place in the file
}

// An Edge says that To waits for From, and why. A plan has an edge for every dependent pair, even
// if other edges imply it. If a handler in between is off, the pair still has to keep its order.
type Edge struct {
	From, To         *Step     // both of one stage; From is declared first
	Why              string    // "notify-driver reads shared-state.order, which get-order writes"
	FromSpan, ToSpan diag.Span // the conflicting places, or the handlers themselves
}

// A sharedName is a declared name of the shared state.
type sharedName struct {
	Name  string
	Value any // initial value
	Raw   json.RawMessage
	Kept  bool // between the events of the key, because the flow declares it
}

// These are the roots of paths that handlers write.
const (
	SharedRoot  = "shared-state"
	SourcesRoot = "sources"
)

// New computes which handlers of a pipeline may run in parallel.
//
// Two handlers of a stage are independent if neither writes what the other reads or writes, and
// they touch nothing in common. A path overlaps with everything above and below it. Any other pair
// keeps its declared order. So in any order in which independent handlers end, the shared state is that
// of running all of them one by one.
func New(b *tree.Bundle, p *tree.Pipeline, types []tree.Type) (*Plan, error) {
	return NewPlanner(b, types).Plan(p)
}

// A Planner makes the plans of a bundle, each once. Pipelines that call the same pipeline share its
// plan.
type Planner struct {
	bundle *tree.Bundle
	types  map[string]tree.Type
	made   map[*tree.Pipeline]*Plan
}

// NewPlanner makes a planner for these handler types.
func NewPlanner(b *tree.Bundle, types []tree.Type) *Planner {
	m := &Planner{b, make(map[string]tree.Type, len(types)), map[*tree.Pipeline]*Plan{}}
	for _, t := range types {
		m.types[t.Name] = t
	}
	return m
}

// Plan makes the plan of a pipeline, as [New] does.
func (m *Planner) Plan(p *tree.Pipeline) (*Plan, error) {
	if plan := m.made[p]; plan != nil {
		return plan, nil
	}
	b := m.bundle
	plan := &Plan{Bundle: b, Pipeline: p, ByPath: map[string]*Step{}, byPath: map[string]*Step{}}
	if p.Flow != "" {
		if plan.Flow = b.Flow(p.Flow); plan.Flow == nil {
			return nil, fmt.Errorf("plan %s: there is no flow %s", p.ID, p.Flow)
		}
	}
	if err := plan.declare(); err != nil {
		return nil, fmt.Errorf("plan %s: %w", p.ID, err)
	}
	for i, stage := range p.Stages {
		planned := &Stage{ID: stage.ID, Declared: stage}
		handlers := stage.Handlers
		if loop := stage.Loop(); loop != nil {
			handlers = []*tree.Handler{loop}
		}
		for _, h := range handlers {
			s, err := plan.add(h, i, m)
			if err != nil {
				return nil, fmt.Errorf("plan %s: %w", p.ID, err)
			}
			planned.join(s)
			if s.Loops {
				planned.loop = s.Callee
			}
		}
		plan.Stages = append(plan.Stages, planned)
		for _, s := range planned.Handlers() {
			plan.Written = append(plan.Written, s)
			plan.byPath[s.Path] = s
		}
	}
	plan.markKept()
	plan.markFleeting()
	plan.Contested = isContested(b, p)
	m.made[p] = plan
	return plan, nil
}

// Step returns the handler at a path, also one of a repeated stage, or nil.
func (p *Plan) Step(path string) *Step { return p.byPath[path] }

// declare collects the names of the shared state.
func (p *Plan) declare() error {
	if p.Flow != nil {
		if err := p.declareNames(p.Flow.SharedState, true); err != nil {
			return err
		}
	}
	return p.declareNames(p.Pipeline.SharedState, false)
}

func (p *Plan) declareNames(v *expr.Value, kept bool) error {
	items := v.Items()
	for i, k := range v.Keys() {
		value, ok := items[i].Literal()
		if !ok {
			return fmt.Errorf("%s: shared-state name %s needs a plain first value", k.Span, k.Name)
		}
		raw, err := model.EncodeData(value)
		if err != nil {
			return fmt.Errorf("%s: shared-state name %s: %w", k.Span, k.Name, err)
		}
		p.Shared = append(p.Shared, sharedName{Name: k.Name, Value: value, Raw: raw, Kept: kept})
	}
	return nil
}

// add makes the step of a handler.
func (p *Plan) add(h *tree.Handler, stage int, m *Planner) (*Step, error) {
	s := &Step{
		Handler: h, Path: h.Path, Owner: cmp.Or(h.Owner, p.Pipeline.Owner),
		Stage: stage, Position: len(p.Steps), Retry: tree.DefaultRetry(),
	}
	if h.Type != "" {
		t, ok := m.types[h.Type]
		if !ok {
			return nil, fmt.Errorf("%s: handler type %s is not known", h.Path, h.Type)
		}
		s.Type = t
	}
	if v := h.Verification(); v != nil {
		if s.Verify = m.types[v.Type]; s.Verify.Name == "" {
			return nil, fmt.Errorf("%s: verify: handler type %q is not known", h.Path, v.Type)
		}
	}
	if p.ByPath[s.Path] != nil {
		return nil, fmt.Errorf("%s: there are two handlers with this path", s.Path)
	}
	s.StagePath = p.Pipeline.ID + "/" + p.Pipeline.Stages[stage].ID
	s.Service, s.Peer = peerOf(p.Bundle, h.Body)
	if h.Retry != nil {
		s.Retry = *h.Retry
	}
	s.Deadline = h.DeadlineBy(s.Type, p.Bundle)
	if err := s.call(m); err != nil {
		return nil, err
	}
	of := p.Pipeline.Stages[stage]
	if h.Loops() {
		element, err := m.Plan(of.Once())
		if err != nil {
			return nil, err
		}
		s.Callee, s.Loops = element, true
	}
	if err := s.compensate(p, m); err != nil {
		return nil, err
	}
	s.gather(of)
	// An upper bound is enough. It is the room for the ends of calls, so that no call waits until
	// its run takes its outcome.
	p.MostCalls += s.Parallel
	if s.Callee != nil {
		p.MostCalls += s.Parallel * s.Callee.MostCalls
	}
	p.Bounded = p.Bounded || p.Pipeline.Deadline > 0 || of.Deadline > 0 || s.Deadline > 0 || s.Callee != nil && s.Callee.Bounded
	s.Volatile = s.isVolatile(of)
	p.ByPath[s.Path] = s
	p.Steps = append(p.Steps, s)
	if h.Detached {
		p.Detached = append(p.Detached, s)
	}
	return s, nil
}

// call plans the pipeline that the handler calls.
func (s *Step) call(m *Planner) (err error) {
	c := s.Handler.Call
	if c == nil {
		return nil
	}
	p := m.bundle.Pipeline(c.Pipeline)
	if p == nil {
		return fmt.Errorf("%s: there is no pipeline %s", s.Path, c.Pipeline)
	}
	s.Callee, err = m.Plan(p)
	return err
}

// compensate plans the compensation of the handler.
func (s *Step) compensate(p *Plan, m *Planner) error {
	h := s.Handler.Compensation()
	p.Undoes = p.Undoes || h != nil || s.Callee != nil && s.Callee.Undoes
	if h == nil {
		return nil
	}
	t, ok := m.types[h.Type]
	if !ok {
		return fmt.Errorf("%s: handler type %s is not known", h.Path, h.Type)
	}
	s.Undo = &Step{
		Handler: h, Type: t, Path: h.Path, Owner: s.Owner, Stage: s.Stage, Index: s.Index, Position: s.Position,
		Retry: tree.DefaultRetry(), StagePath: s.StagePath, Parallel: 1, Undoes: true,
	}
	s.Undo.Service, s.Undo.Peer = peerOf(p.Bundle, h.Body)
	if h.Retry != nil {
		s.Undo.Retry = *h.Retry
	}
	return nil
}

// gather collects what the handler reads, writes and touches.
func (s *Step) gather(stage *tree.Stage) {
	h := s.Handler
	own := datum.Path{SourcesRoot, h.ID}
	s.Reads = slices.Concat(h.ConditionReads(), h.ItemReads(), h.AwaitReads(), h.BodyReads())
	if s.Loops {
		s.Reads = stage.LoopReads()
	}
	for _, r := range slices.Concat(h.Result.Reads(), h.VerifyReads()) {
		// A handler does not wait for itself. Its result is computed when its own source is there,
		// and done is evaluated on an existing answer.
		if len(r.Path) < len(own) || !r.Path[:len(own)].Equal(own) {
			s.Reads = append(s.Reads, r)
		}
	}
	s.Writes = append(s.Writes, Write{Path: own, Span: h.Span})
	s.writes(h.Result)
	if s.Type.SetsState {
		s.writes(h.Body)
	}
	if h.Fallback != nil {
		s.Reads = append(s.Reads, h.Fallback.Result.Reads()...)
		s.writes(h.Fallback.Result)
	}
	s.Reads = append(s.Reads, h.ErrorReads()...)
	for _, rule := range h.OnError {
		s.writes(rule.Result)
	}
	s.Touches = append(s.Touches, h.Touches...)
	if s.Type.Emits {
		s.Touches = append(s.Touches, emitToken)
	}
	if s.Callee != nil {
		// Its state is its own, so only what it touches outside can conflict.
		for _, inner := range s.Callee.Steps {
			s.Touches = append(s.Touches, inner.Touches...)
		}
		s.Touches = unique(s.Touches)
	}
	s.Parallel = 1
	if f := h.ForEach; f != nil && len(s.Touches) == 0 {
		s.Parallel = f.Parallel() // touching the same thing keeps the order
	}
}

// writes adds the keys of a mapping, which are names of the shared state.
func (s *Step) writes(v *expr.Value) {
	for _, k := range v.Keys() {
		s.Writes = append(s.Writes, Write{Path: datum.Path{SharedRoot, k.Name}, Span: k.Span})
	}
}

// join adds a step with its edges to the earlier ones.
func (g *Stage) join(s *Step) {
	s.Index = len(g.Steps)
	for _, earlier := range g.Steps {
		if e, ok := depend(earlier, s); ok {
			s.After = append(s.After, e)
		}
	}
	g.Steps = append(g.Steps, s)
}

// depend reports whether b, declared after a, must wait for a. Only one of two branches ever runs.
func depend(a, b *Step) (Edge, bool) {
	if a.Handler.Branch != b.Handler.Branch && a.Handler.Branch != nil && b.Handler.Branch != nil {
		return Edge{}, false
	}
	e := Edge{From: a, To: b, FromSpan: a.Handler.Span, ToSpan: b.Handler.Span}
	if w, r, ok := Overlap(a, b); ok {
		e.FromSpan, e.ToSpan = w.Span, r.Span
		e.Why = fmt.Sprintf("%s reads %s, which %s writes", b.Handler.ID, r.Path, a.Handler.ID)
		if w.Path[0] == SourcesRoot {
			e.Why = fmt.Sprintf("%s reads %s, the outcome of %s", b.Handler.ID, r.Path, a.Handler.ID)
		}
		return e, true
	}
	for _, w := range a.Writes {
		for _, v := range b.Writes {
			if w.Path.Overlaps(v.Path) {
				e.FromSpan, e.ToSpan = w.Span, v.Span
				e.Why = fmt.Sprintf("%s and %s both write %s", a.Handler.ID, b.Handler.ID, v.Path)
				return e, true
			}
		}
	}
	if w, r, ok := Overlap(b, a); ok {
		e.FromSpan, e.ToSpan = r.Span, w.Span
		e.Why = fmt.Sprintf("%s writes %s, which %s reads before", b.Handler.ID, w.Path, a.Handler.ID)
		return e, true
	}
	for _, t := range a.Touches {
		if slices.Contains(b.Touches, t) {
			e.Why = fmt.Sprintf("%s and %s both touch %s", a.Handler.ID, b.Handler.ID, t)
			return e, true
		}
	}
	return Edge{}, false
}

// Overlap returns the first read of reader that a write of writer may change.
func Overlap(writer, reader *Step) (Write, datum.Read, bool) {
	for _, r := range reader.Reads {
		for _, w := range writer.Writes {
			if w.Path.Overlaps(r.Path) {
				return w, r, true
			}
		}
	}
	return Write{}, datum.Read{}, false
}

// markKept finds the responses that other handlers may read. Checkpoints need not keep the others.
func (p *Plan) markKept() {
	for _, s := range p.Steps {
		response := datum.Path{SourcesRoot, s.Handler.ID, "response"}
		for _, other := range p.Steps {
			for _, r := range other.Reads {
				s.Keeps = s.Keeps || other != s && r.Path.Overlaps(response)
			}
			for _, r := range other.Handler.CompensateReads() {
				s.Keeps = s.Keeps || r.Path.Overlaps(response)
			}
		}
		for _, r := range p.Pipeline.Outputs.Reads() {
			s.Keeps = s.Keeps || r.Path.Overlaps(response)
		}
		for _, stage := range p.Stages[s.Stage+1:] {
			for _, r := range stage.Declared.ConditionReads() {
				s.Keeps = s.Keeps || r.Path.Overlaps(response)
			}
		}
		s.Gathers = s.Keeps || slices.ContainsFunc(s.Handler.Result.Reads(), func(r datum.Read) bool { return r.Path.Overlaps(response) })
	}
}

// isVolatile reports whether live settings, or the time when the run began, affect the handler.
// Both are lost in a crash before the first checkpoint.
func (s *Step) isVolatile(stage *tree.Stage) bool {
	began := datum.Path{"run", "started"}
	conditions := slices.Concat(stage.ConditionReads(), s.Handler.ConditionReads())
	reads := slices.Concat(conditions, s.Handler.BodyReads())
	return AnyLive(conditions) || s.Handler.Rollout != nil ||
		slices.ContainsFunc(reads, func(r datum.Read) bool { return r.Path.Overlaps(began) })
}

// readsLive reports whether a value depends on live settings.
func readsLive(v *expr.Value) bool { return AnyLive(v.Reads()) }

// AnyLive reports whether one of the reads is of live settings.
func AnyLive(reads []datum.Read) bool {
	return slices.ContainsFunc(reads, func(r datum.Read) bool { return r.Path[0] == "configs" })
}

// isContested reports whether live settings choose between p and others.
func isContested(b *tree.Bundle, p *tree.Pipeline) bool {
	events := p.On
	if len(events) == 0 && !p.IsCalled() {
		events = spec.Names{p.ID}
	}
	for _, event := range events {
		if slices.ContainsFunc(b.On(event), func(other *tree.Pipeline) bool { return readsLive(other.When) }) {
			return true
		}
	}
	return false
}

// emitToken is what all handlers that emit events touch.
const emitToken = "emitted events"

// markFleeting finds what the conditions of a handler read from the shared state and later handlers
// write. Such values are kept for explanations. The others are still in the checkpoint afterwards.
func (p *Plan) markFleeting() {
	for _, s := range p.Steps {
		stage := p.Stages[s.Stage]
		reads := slices.Concat(s.Handler.ConditionReads(), stage.Declared.ConditionReads())
		for _, n := range p.Shared {
			path := datum.Path{SharedRoot, n.Name}
			read := slices.ContainsFunc(reads, func(r datum.Read) bool { return r.Path.Overlaps(path) })
			written := slices.ContainsFunc(p.Steps[stage.Steps[0].Position:], func(later *Step) bool {
				return slices.ContainsFunc(later.Writes, func(w Write) bool { return w.Path.Overlaps(path) })
			})
			if read && written {
				s.Fleeting = append(s.Fleeting, n.Name)
			}
		}
	}
}
