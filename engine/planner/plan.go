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

// A Plan is a pipeline with its proof: which handlers of a stage must wait for
// which others, and why. It is immutable.
type Plan struct {
	Bundle   *tree.Bundle // the definition that the pipeline is of
	Pipeline *tree.Pipeline
	Flow     *tree.Flow // nil when the pipeline has none
	Stages   []*Stage   // in the order in which a run goes through them

	ByPath    map[string]*Step // by path
	Steps     []*Step          // all of them, as declared
	Written   []*Step          // those that authors write: with the ones of repeated stages in place of these
	Detached  []*Step          // those that the next stage does not wait for
	byPath    map[string]*Step // of all
	Shared    []sharedName     // that the flow and the pipeline declare
	MostCalls int              // calls that may be under way at once

	Undoes  bool // a handler has a compensation, or one that it calls
	Bounded bool // a deadline is in it, or in a pipeline that it calls

	// Contested says that live settings decide whether this pipeline or another
	// one serves an event.
	Contested bool
}

// A Stage is a stage with its handlers in the order of declaration.
type Stage struct {
	ID    string
	Steps []*Step // the one that the stage is from outside, when it is repeated

	Declared *tree.Stage
	loop     *Plan // of one element, when the stage is repeated
}

// Handlers lists the handlers of the stage that authors write, in the order of
// declaration.
func (g *Stage) Handlers() []*Step {
	if g.loop != nil {
		return g.loop.Written
	}
	return g.Steps
}

// Loop returns what the stage is from outside when it is repeated for each element of a
// list; nil when it is not.
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
	Path    string    // pipeline/stage/handler; of a compensation, with /compensate behind it
	Owner   string    // who looks after it: the handler's owner, or else the pipeline's
	Stage   int       // its index in Plan.Stages
	Index   int       // in its stage

	Reads   []datum.Read // of all expressions: enabled, body, result, verify, fallback, on-error
	Writes  []Write      // whatever becomes of the handler: its result, the fallback's, and those of on-error
	Touches []string     // effects outside the shared state
	Peer    string       // whom its calls reach, as far as that is known beforehand: the id of a declared service, or a host; empty for nobody
	After   []Edge       // what it waits for within its stage; empty: it may start at once

	Position  int // in Plan.order
	Verify    tree.Type
	Retry     tree.Retry    // the policy, defaults included
	Deadline  time.Duration // of all attempts together, defaults included; 0 for none
	Keeps     bool          // another handler may read the response
	Fleeting  []string      // names of the shared state that its conditions read and later handlers write
	StagePath string        // the path of its stage
	Volatile  bool          // begun anew, it might be skipped, or send something else

	Parallel int  // items of its for-each that are worked on at once; 1 without one
	Gathers  bool // the responses of items are kept: the result or another handler may read them

	Callee *Plan // of the pipeline that it calls, or of one element of a repeated stage; nil when it calls none
	Loops  bool  // it is a repeated stage, as that is from outside

	Undo   *Step // its compensation; nil when it has none
	Undoes bool  // it is the compensation of another

	Service *tree.Service // that is declared; nil when it is not known before the call
}

// A Write is a path that a handler sets: a name of the shared state, or its own
// sources entry.
type Write struct {
	Path datum.Path // from the root
	Span diag.Span  // where the author says so
}

// An Edge says that To waits for From, and proves it. A plan has the edge of
// every dependent pair, also where others imply it: when a handler in between
// is off, the pair still has to keep its order.
type Edge struct {
	From, To         *Step     // of one stage; From is declared first
	Why              string    // "notify-driver reads shared-state.order, which get-order writes"
	FromSpan, ToSpan diag.Span // what they share, or else the handlers themselves
}

// A sharedName is a declared name of the shared state.
type sharedName struct {
	Name  string
	Value any // the first one
	Raw   json.RawMessage
	Kept  bool // between the events of the key: the flow declares it
}

// The roots of paths that handlers write to.
const (
	SharedRoot  = "shared-state"
	SourcesRoot = "sources"
)

// New proves which handlers of a pipeline may run in parallel.
//
// Two handlers of a stage are independent when neither writes what the other
// reads or writes, and they touch nothing in common; a path overlaps with all
// that lies below and above it. Any other pair keeps the order in which it is
// declared. So whatever order independent handlers end in, the shared state is
// that of running all of them one by one.
func New(b *tree.Bundle, p *tree.Pipeline, types []tree.Type) (*Plan, error) {
	return NewPlanner(b, types).Plan(p)
}

// A Planner makes the plans of a bundle, each once: those that call a pipeline share
// its plan.
type Planner struct {
	bundle *tree.Bundle
	types  map[string]tree.Type
	made   map[*tree.Pipeline]*Plan
}

// NewPlanner makes a planner that knows these types.
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

// Step finds a handler by its path, also one of a repeated stage; nil when there is
// none.
func (p *Plan) Step(path string) *Step { return p.byPath[path] }

// declare gathers the names of the shared state.
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
	// An upper bound is enough: it is the room for the ends of calls, so that no call has to
	// wait for its run to be told.
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

// gather finds what the handler reads, writes and touches.
func (s *Step) gather(stage *tree.Stage) {
	h := s.Handler
	own := datum.Path{SourcesRoot, h.ID}
	s.Reads = slices.Concat(h.ConditionReads(), h.ItemReads(), h.AwaitReads(), h.BodyReads())
	if s.Loops {
		s.Reads = stage.LoopReads()
	}
	for _, r := range slices.Concat(h.Result.Reads(), h.VerifyReads()) {
		// A handler does not wait for itself: its result is made when its own
		// source is there, and done is asked about an answer that is there.
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
		// Its state is its own, so that only what it touches outside can get in the way.
		for _, inner := range s.Callee.Steps {
			s.Touches = append(s.Touches, inner.Touches...)
		}
		s.Touches = unique(s.Touches)
	}
	s.Parallel = 1
	if f := h.ForEach; f != nil && len(s.Touches) == 0 {
		s.Parallel = f.Parallel() // what touches the same thing keeps its order
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

// depend reports whether b, declared after a, must wait for it. Of two in different
// branches only one ever runs.
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

// Overlap finds the first read of reader that a write of writer may change.
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

// markKept finds the responses that other handlers may read. The others need
// not be kept in checkpoints.
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

// isVolatile reports whether live settings decide if the handler runs, or whether
// it is told the time at which the run began. Both are lost in a crash before the
// first checkpoint.
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

// markFleeting finds what the conditions of a handler read of the shared state and
// handlers after them write. Such values are kept for explanations: the rest can be
// found in the checkpoint afterwards.
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
