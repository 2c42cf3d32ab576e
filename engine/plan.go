package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"procaas/dsl"
	"procaas/dsl/diag"
)

// A Plan is a pipeline with its proof: which handlers of a stage must wait for
// which others, and why. It is immutable.
type Plan struct {
	Bundle   *dsl.Bundle // the definition that the pipeline is of
	Pipeline *dsl.Pipeline
	Flow     *dsl.Flow       // nil when the pipeline has none
	Stages   []*PlannedStage // in the order in which a run goes through them

	steps  map[string]*Step // by path
	order  []*Step          // all of them, as declared
	all    []*Step          // those that authors write: with the ones of repeated stages in place of these
	byPath map[string]*Step // of all
	shared []sharedName     // that the flow and the pipeline declare
	most   int              // calls that may be under way at once

	undoes bool // a handler has a compensation, or one that it calls

	// contested says that live settings decide whether this pipeline or another
	// one serves an event.
	contested bool
}

// A PlannedStage is a stage with its handlers in the order of declaration.
type PlannedStage struct {
	ID    string
	Steps []*Step // the one that the stage is from outside, when it is repeated

	of   *dsl.Stage
	loop *Plan // of one element, when the stage is repeated
}

// Handlers lists the handlers of the stage that authors write, in the order of
// declaration.
func (g *PlannedStage) Handlers() []*Step {
	if g.loop != nil {
		return g.loop.all
	}
	return g.Steps
}

// Loop gives what the stage is from outside when it is repeated for each element of a
// list; nil when it is not.
func (g *PlannedStage) Loop() *Step {
	if g.loop == nil {
		return nil
	}
	return g.Steps[0]
}

// A Step is a handler in a plan.
type Step struct {
	Handler *dsl.Handler
	Type    dsl.Type // zero for a placeholder
	Path    string   // pipeline/stage/handler; of a compensation, with /compensate behind it
	Owner   string   // who looks after it: the handler's owner, or else the pipeline's
	Stage   int      // its index in Plan.Stages
	Index   int      // in its stage

	Reads   []dsl.Read // of all expressions: enabled, body, result, verify, fallback, on-error
	Writes  []Write    // whatever becomes of the handler: its result, the fallback's, and those of on-error
	Touches []string   // effects outside the shared state
	Peer    string     // whom its calls reach, as far as that is known beforehand: the id of a declared service, or a host; empty for nobody
	After   []Edge     // what it waits for within its stage; empty: it may start at once

	position int // in Plan.order
	verify   dsl.Type
	retry    dsl.Retry // the policy, defaults included
	keep     bool      // another handler may read the response
	fleeting []string  // names of the shared state that its conditions read and later handlers write
	stage    string    // the path of its stage
	volatile bool      // begun anew, it might be skipped, or send something else

	parallel int  // items of its for-each that are worked on at once; 1 without one
	gathers  bool // the responses of items are kept: the result or another handler may read them

	callee *Plan // of the pipeline that it calls, or of one element of a repeated stage; nil when it calls none
	loops  bool  // it is a repeated stage, as that is from outside

	undo   *Step // its compensation; nil when it has none
	undoes bool  // it is the compensation of another

	calls *dsl.Service // that is declared; nil when it is not known before the call
}

// A Write is a path that a handler sets: a name of the shared state, or its own
// sources entry.
type Write struct {
	Path dsl.Path  // from the root
	Span diag.Span // where the author says so
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
	name  string
	value any // the first one
	raw   json.RawMessage
	kept  bool // between the events of the key: the flow declares it
}

// The roots of paths that handlers write to.
const (
	sharedRoot  = "shared-state"
	sourcesRoot = "sources"
)

// NewPlan proves which handlers of a pipeline may run in parallel.
//
// Two handlers of a stage are independent when neither writes what the other
// reads or writes, and they touch nothing in common; a path overlaps with all
// that lies below and above it. Any other pair keeps the order in which it is
// declared. So whatever order independent handlers end in, the shared state is
// that of running all of them one by one.
func NewPlan(b *dsl.Bundle, p *dsl.Pipeline, types []dsl.Type) (*Plan, error) {
	return NewPlanner(b, types).Plan(p)
}

// A Planner makes the plans of a bundle, each once: those that call a pipeline share
// its plan.
type Planner struct {
	bundle *dsl.Bundle
	types  map[string]dsl.Type
	made   map[*dsl.Pipeline]*Plan
}

// NewPlanner makes a planner that knows these types.
func NewPlanner(b *dsl.Bundle, types []dsl.Type) *Planner {
	m := &Planner{b, make(map[string]dsl.Type, len(types)), map[*dsl.Pipeline]*Plan{}}
	for _, t := range types {
		m.types[t.Name] = t
	}
	return m
}

// Plan makes the plan of a pipeline, as [NewPlan] does.
func (m *Planner) Plan(p *dsl.Pipeline) (*Plan, error) {
	if plan := m.made[p]; plan != nil {
		return plan, nil
	}
	b := m.bundle
	plan := &Plan{Bundle: b, Pipeline: p, steps: map[string]*Step{}, byPath: map[string]*Step{}}
	if p.Flow != "" {
		if plan.Flow = b.Flow(p.Flow); plan.Flow == nil {
			return nil, fmt.Errorf("plan %s: there is no flow %s", p.ID, p.Flow)
		}
	}
	if err := plan.declare(); err != nil {
		return nil, fmt.Errorf("plan %s: %w", p.ID, err)
	}
	for i, stage := range p.Stages {
		planned := &PlannedStage{ID: stage.ID, of: stage}
		handlers := stage.Handlers
		if loop := stage.Loop(); loop != nil {
			handlers = []*dsl.Handler{loop}
		}
		for _, h := range handlers {
			s, err := plan.add(h, i, m)
			if err != nil {
				return nil, fmt.Errorf("plan %s: %w", p.ID, err)
			}
			planned.join(s)
			if s.loops {
				planned.loop = s.callee
			}
		}
		plan.Stages = append(plan.Stages, planned)
		for _, s := range planned.Handlers() {
			plan.all = append(plan.all, s)
			plan.byPath[s.Path] = s
		}
	}
	plan.markKept()
	plan.markFleeting()
	plan.contested = isContested(b, p)
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

func (p *Plan) declareNames(v *dsl.Value, kept bool) error {
	items := v.Items()
	for i, k := range v.Keys() {
		value, ok := items[i].Literal()
		if !ok {
			return fmt.Errorf("%s: shared-state name %s needs a plain first value", k.Span, k.Name)
		}
		raw, err := encodeData(value)
		if err != nil {
			return fmt.Errorf("%s: shared-state name %s: %w", k.Span, k.Name, err)
		}
		p.shared = append(p.shared, sharedName{name: k.Name, value: value, raw: raw, kept: kept})
	}
	return nil
}

// add makes the step of a handler.
func (p *Plan) add(h *dsl.Handler, stage int, m *Planner) (*Step, error) {
	s := &Step{
		Handler: h, Path: h.Path, Owner: cmp.Or(h.Owner, p.Pipeline.Owner),
		Stage: stage, position: len(p.order), retry: DefaultRetry(),
	}
	if h.Type != "" {
		t, ok := m.types[h.Type]
		if !ok {
			return nil, fmt.Errorf("%s: handler type %s is not known", h.Path, h.Type)
		}
		s.Type = t
	}
	if v := h.Verification(); v != nil {
		if s.verify = m.types[v.Type]; s.verify.Name == "" {
			return nil, fmt.Errorf("%s: verify: handler type %q is not known", h.Path, v.Type)
		}
	}
	if p.steps[s.Path] != nil {
		return nil, fmt.Errorf("%s: there are two handlers with this path", s.Path)
	}
	s.stage = p.Pipeline.ID + "/" + p.Pipeline.Stages[stage].ID
	s.calls, s.Peer = peerOf(p.Bundle, h.Body)
	if h.Retry != nil {
		s.retry = *h.Retry
	}
	if err := s.call(m); err != nil {
		return nil, err
	}
	of := p.Pipeline.Stages[stage]
	if h.Loops() {
		element, err := m.Plan(of.Once())
		if err != nil {
			return nil, err
		}
		s.callee, s.loops = element, true
	}
	if err := s.compensate(p, m); err != nil {
		return nil, err
	}
	s.gather(of)
	// An upper bound is enough: it is the room for the ends of calls, so that no call has to
	// wait for its run to be told.
	p.most += s.parallel
	if s.callee != nil {
		p.most += s.parallel * s.callee.most
	}
	s.volatile = s.isVolatile(of)
	p.steps[s.Path] = s
	p.order = append(p.order, s)
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
	s.callee, err = m.Plan(p)
	return err
}

// compensate plans the compensation of the handler.
func (s *Step) compensate(p *Plan, m *Planner) error {
	h := s.Handler.Compensation()
	p.undoes = p.undoes || h != nil || s.callee != nil && s.callee.undoes
	if h == nil {
		return nil
	}
	t, ok := m.types[h.Type]
	if !ok {
		return fmt.Errorf("%s: handler type %s is not known", h.Path, h.Type)
	}
	s.undo = &Step{
		Handler: h, Type: t, Path: h.Path, Owner: s.Owner, Stage: s.Stage, Index: s.Index, position: s.position,
		retry: DefaultRetry(), stage: s.stage, parallel: 1, undoes: true,
	}
	s.undo.calls, s.undo.Peer = peerOf(p.Bundle, h.Body)
	if h.Retry != nil {
		s.undo.retry = *h.Retry
	}
	return nil
}

// gather finds what the handler reads, writes and touches.
func (s *Step) gather(stage *dsl.Stage) {
	h := s.Handler
	own := dsl.Path{sourcesRoot, h.ID}
	s.Reads = slices.Concat(h.ConditionReads(), h.ItemReads(), h.AwaitReads(), h.BodyReads())
	if s.loops {
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
	if s.callee != nil {
		// Its state is its own, so that only what it touches outside can get in the way.
		for _, inner := range s.callee.order {
			s.Touches = append(s.Touches, inner.Touches...)
		}
		s.Touches = unique(s.Touches)
	}
	s.parallel = 1
	if f := h.ForEach; f != nil && len(s.Touches) == 0 {
		s.parallel = f.Parallel() // what touches the same thing keeps its order
	}
}

// writes adds the keys of a mapping, which are names of the shared state.
func (s *Step) writes(v *dsl.Value) {
	for _, k := range v.Keys() {
		s.Writes = append(s.Writes, Write{Path: dsl.Path{sharedRoot, k.Name}, Span: k.Span})
	}
}

// join adds a step with its edges to the earlier ones.
func (g *PlannedStage) join(s *Step) {
	s.Index = len(g.Steps)
	for _, earlier := range g.Steps {
		if e, ok := depend(earlier, s); ok {
			s.After = append(s.After, e)
		}
	}
	g.Steps = append(g.Steps, s)
}

// depend tells whether b, declared after a, must wait for it. Of two in different
// branches only one ever runs.
func depend(a, b *Step) (Edge, bool) {
	if a.Handler.Branch != b.Handler.Branch && a.Handler.Branch != nil && b.Handler.Branch != nil {
		return Edge{}, false
	}
	e := Edge{From: a, To: b, FromSpan: a.Handler.Span, ToSpan: b.Handler.Span}
	if w, r, ok := overlap(a, b); ok {
		e.FromSpan, e.ToSpan = w.Span, r.Span
		e.Why = fmt.Sprintf("%s reads %s, which %s writes", b.Handler.ID, r.Path, a.Handler.ID)
		if w.Path[0] == sourcesRoot {
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
	if w, r, ok := overlap(b, a); ok {
		e.FromSpan, e.ToSpan = r.Span, w.Span
		e.Why = fmt.Sprintf("%s writes %s, which %s reads before", b.Handler.ID, w.Path, a.Handler.ID)
		return e, true
	}
	for _, t := range a.Touches {
		for _, u := range b.Touches {
			if t == u {
				e.Why = fmt.Sprintf("%s and %s both touch %s", a.Handler.ID, b.Handler.ID, t)
				return e, true
			}
		}
	}
	return Edge{}, false
}

// overlap finds the first read of reader that a write of writer may change.
func overlap(writer, reader *Step) (Write, dsl.Read, bool) {
	for _, r := range reader.Reads {
		for _, w := range writer.Writes {
			if w.Path.Overlaps(r.Path) {
				return w, r, true
			}
		}
	}
	return Write{}, dsl.Read{}, false
}

// markKept finds the responses that other handlers may read. The others need
// not be kept in checkpoints.
func (p *Plan) markKept() {
	for _, s := range p.order {
		response := dsl.Path{sourcesRoot, s.Handler.ID, "response"}
		for _, other := range p.order {
			for _, r := range other.Reads {
				s.keep = s.keep || other != s && r.Path.Overlaps(response)
			}
			for _, r := range other.Handler.CompensateReads() {
				s.keep = s.keep || r.Path.Overlaps(response)
			}
		}
		for _, r := range p.Pipeline.Outputs.Reads() {
			s.keep = s.keep || r.Path.Overlaps(response)
		}
		for _, stage := range p.Stages[s.Stage+1:] {
			for _, r := range stage.of.ConditionReads() {
				s.keep = s.keep || r.Path.Overlaps(response)
			}
		}
		s.gathers = s.keep || slices.ContainsFunc(s.Handler.Result.Reads(), func(r dsl.Read) bool { return r.Path.Overlaps(response) })
	}
}

// isVolatile tells whether live settings decide if the handler runs, or whether
// it is told the time at which the run began. Both are lost in a crash before the
// first checkpoint.
func (s *Step) isVolatile(stage *dsl.Stage) bool {
	began := dsl.Path{"run", "started"}
	conditions := slices.Concat(stage.ConditionReads(), s.Handler.ConditionReads())
	reads := slices.Concat(conditions, s.Handler.BodyReads())
	return anyLive(conditions) || s.Handler.Rollout != nil || slices.ContainsFunc(reads, func(r dsl.Read) bool { return r.Path.Overlaps(began) })
}

// readsLive tells whether a value depends on live settings.
func readsLive(v *dsl.Value) bool { return anyLive(v.Reads()) }

func anyLive(reads []dsl.Read) bool {
	return slices.ContainsFunc(reads, func(r dsl.Read) bool { return r.Path[0] == "configs" })
}

// isContested tells whether live settings choose between p and others.
func isContested(b *dsl.Bundle, p *dsl.Pipeline) bool {
	events := p.On
	if len(events) == 0 && !p.IsCalled() {
		events = dsl.Names{p.ID}
	}
	for _, event := range events {
		if slices.ContainsFunc(b.On(event), func(other *dsl.Pipeline) bool { return readsLive(other.When) }) {
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
	for _, s := range p.order {
		stage := p.Stages[s.Stage]
		reads := slices.Concat(s.Handler.ConditionReads(), stage.of.ConditionReads())
		for _, n := range p.shared {
			path := dsl.Path{sharedRoot, n.name}
			read := slices.ContainsFunc(reads, func(r dsl.Read) bool { return r.Path.Overlaps(path) })
			written := slices.ContainsFunc(p.order[stage.Steps[0].position:], func(later *Step) bool {
				return slices.ContainsFunc(later.Writes, func(w Write) bool { return w.Path.Overlaps(path) })
			})
			if read && written {
				s.fleeting = append(s.fleeting, n.name)
			}
		}
	}
}

// DefaultRetry is the policy of handlers that set none.
func DefaultRetry() dsl.Retry {
	return dsl.Retry{
		Attempts: 3,
		MinDelay: 100 * time.Millisecond,
		MaxDelay: 15 * time.Minute,
		Factor:   2,
		Jitter:   dsl.Jitter{Share: 0.1},
		On:       []string{"timeout", "connection", "5xx", "408", "425", "429"},
	}
}
