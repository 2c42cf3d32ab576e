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

	ByPath   map[string]*Step // by path
	Steps    []*Step          // all of them, as declared
	Written  []*Step          // those in the files: repeated stages count as their handlers
	Detached []*Step          // those that the next stage does not wait for
	byPath   map[string]*Step // includes those of repeated stages
	Shared   []sharedName     // declared by the flow and the pipeline

	Final   *Stage // the last of Stages if it is that of finally; nil for none
	Undoes  bool   // a handler, or one that it calls, has a compensation
	Bounded bool   // it, or a pipeline that it calls, has a deadline

	longest tree.Longest
	touches []string // of all handlers, each once; pipelines that call this one share it

	// Contested says that live settings decide which of several pipelines serves an event.
	Contested bool
}

// A Stage is a stage with its handlers in declared order.
type Stage struct {
	ID    string
	Steps []*Step // a repeated stage has only its Loop

	Declared *tree.Stage
	loop     *Plan // for one element, if the stage is repeated
	longest  tree.Longest
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
	Peer string

	// Groups are the earlier handlers of its stage with which it shares something: see [Step.Waits].
	Groups [][]*Step
	direct []*Step // those of them that no others imply; empty: it may start at once

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

	longest tree.Longest

	Undo   *Step // its compensation; nil for none
	Undoes bool  // it is the compensation of another
	Final  bool  // it is of finally

	Service *tree.Service // declared service; nil if only the call itself knows it

	form spec.FirstForm // of its body
}

// Fill fills a handler of the step's type with what the body of the step has evaluated to. The handler must be new.
func (s *Step) Fill(data any, into any) error {
	return s.form.Of(s.Type.Spec, s.Handler.Body).Fill(data, into)
}

// A Write is a path that a handler sets: a name of the shared state, or its own entry in sources.
type Write struct {
	Path datum.Path // from the root
	Span diag.Span  // place in the file
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
	hosts  map[string]*tree.Service // the first service at each host
	others map[string]*tree.Service // what else handlers call, by id

	earlier map[*tree.Pipeline]*Plan // of an earlier bundle, see Reuse; nil for none
}

// NewPlanner makes a planner for these handler types.
func NewPlanner(b *tree.Bundle, types []tree.Type) *Planner {
	m := &Planner{
		bundle: b, types: make(map[string]tree.Type, len(types)), made: map[*tree.Pipeline]*Plan{}, hosts: servicesByHost(b),
		others: othersThanServices(b),
	}
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
	if plan := m.reused(p); plan != nil {
		m.made[p] = plan
		return plan, nil
	}
	b := m.bundle
	plan := &Plan{Bundle: b, Pipeline: p, ByPath: map[string]*Step{}, byPath: map[string]*Step{}}
	if p.Flow != "" {
		plan.Flow = b.Flow(p.Flow)
		if plan.Flow == nil {
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
		shared := newSharing()
		conditions := conditionsOf(stage)
		for _, h := range handlers {
			s, err := plan.add(h, i, m)
			if err != nil {
				return nil, fmt.Errorf("plan %s: %w", p.ID, err)
			}
			s.Volatile = s.Volatile || conditions.live || conditions.began
			s.Final = stage.Final
			s.Index = len(planned.Steps)
			planned.Steps = append(planned.Steps, s)
			shared.join(s)
			if s.Loops {
				planned.loop = s.Callee
			}
		}
		plan.Stages = append(plan.Stages, planned)
		if stage.Final {
			plan.Final = planned
		}
		for _, s := range planned.Handlers() {
			plan.Written = append(plan.Written, s)
			plan.byPath[s.Path] = s
		}
	}
	plan.markKept()
	plan.markFleeting()
	plan.findLongest()
	plan.touches = plan.touched()
	plan.Contested = isContested(b, p)
	m.made[p] = plan
	return plan, nil
}

// EndsOrderly reports whether a run that is cancelled has something left to do.
func (p *Plan) EndsOrderly() bool { return p.Undoes || p.Final != nil || len(p.Notifications()) > 0 }

// Notifications lists who hears how runs end: those of the pipeline and of its flow.
func (p *Plan) Notifications() []*tree.Notification {
	if p.Flow == nil {
		return p.Pipeline.Notify
	}
	return slices.Concat(p.Pipeline.Notify, p.Flow.Notify)
}

// instantMost is how many handlers a pipeline has at most whose runs are instant.
const instantMost = 16

// IsInstant reports whether a run that nothing holds up ends as soon as it begins, and nobody but readers of the run hears of it: each
// handler computes, once.
func (p *Plan) IsInstant() bool {
	if p.Flow != nil || p.EndsOrderly() || len(p.Detached) > 0 || len(p.Steps) > instantMost {
		return false
	}
	return !slices.ContainsFunc(p.Steps, func(s *Step) bool {
		return !s.Computes() || s.Callee != nil || s.Handler.ForEach != nil || s.Handler.Await != nil
	})
}

// Regular returns how many stages a run goes through before that of finally.
func (p *Plan) Regular() int {
	if p.Final != nil {
		return len(p.Stages) - 1
	}
	return len(p.Stages)
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
		s.Verify = m.types[v.Type]
		if s.Verify.Name == "" {
			return nil, fmt.Errorf("%s: verify: handler type %q is not known", h.Path, v.Type)
		}
	}
	if p.ByPath[s.Path] != nil {
		return nil, fmt.Errorf("%s: there are two handlers with this path", s.Path)
	}
	s.StagePath = p.Pipeline.ID + "/" + p.Pipeline.Stages[stage].ID
	s.Service, s.Peer = m.peerOf(s.Type, h.Body)
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
	if s.Deadline > 0 || of.Deadline > 0 || p.Pipeline.Deadline > 0 {
		p.Bounded = true
	}
	if s.Callee != nil && s.Callee.Bounded {
		p.Bounded = true
	}
	s.Volatile = s.isVolatile()
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
	s.Undo.Service, s.Undo.Peer = m.peerOf(t, h.Body)
	if h.Retry != nil {
		s.Undo.Retry = *h.Retry
	}
	s.Undo.Deadline = h.Deadline
	p.Bounded = p.Bounded || h.Deadline > 0
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
	switch {
	case s.Callee == nil:
	case len(s.Touches) == 0:
		// Its state is its own, so only what it touches outside can conflict.
		s.Touches = s.Callee.touches
	default:
		s.Touches = unique(slices.Concat(s.Touches, s.Callee.touches))
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

// touched returns what the handlers touch, each once.
func (p *Plan) touched() []string {
	var all []string
	seen := map[string]bool{}
	for _, s := range p.Steps {
		for _, t := range s.Touches {
			if !seen[t] {
				seen[t] = true
				all = append(all, t)
			}
		}
	}
	return all
}

// A reader is a place in a pipeline that reads a response: a handler, or the conditions of a stage.
type reader struct {
	step  *Step // nil for conditions, outputs and compensations
	after int   // it reads the responses of the stages before this one only
}

// markKept finds the responses that other handlers may read. Checkpoints need not keep the others.
func (p *Plan) markKept() {
	readers := map[string][]reader{} // by handler
	var any []reader                 // of every handler
	add := func(reads []datum.Read, by reader) {
		for _, r := range reads {
			if !r.Path.Overlaps(datum.Path{SourcesRoot, datum.Wildcard, "response"}) {
				continue
			}
			if at, whole := placeOf(r.Path); whole {
				any = append(any, by)
			} else {
				readers[at.name] = append(readers[at.name], by)
			}
		}
	}
	for _, s := range p.Steps {
		add(s.Reads, reader{s, len(p.Stages)})
		add(s.Handler.CompensateReads(), reader{nil, len(p.Stages)})
	}
	add(p.Pipeline.Outputs.Reads(), reader{nil, len(p.Stages)})
	for i, stage := range p.Stages {
		add(stage.Declared.ConditionReads(), reader{nil, i})
	}
	for _, s := range p.Steps {
		reads := func(by reader) bool { return by.step != s && s.Stage < by.after }
		s.Keeps = slices.ContainsFunc(readers[s.Handler.ID], reads) || slices.ContainsFunc(any, reads)
		response := datum.Path{SourcesRoot, s.Handler.ID, "response"}
		s.Gathers = s.Keeps || slices.ContainsFunc(s.Handler.Result.Reads(), func(r datum.Read) bool { return r.Path.Overlaps(response) })
	}
}

// began is when the run has begun, as expressions read it.
var began = datum.Path{"run", "started"}

// readsBegan reports whether one of the reads is of the time when the run has begun.
func readsBegan(reads []datum.Read) bool {
	return slices.ContainsFunc(reads, func(r datum.Read) bool { return r.Path.Overlaps(began) })
}

// A stageConditions is what the conditions of a stage read that a crash loses.
type stageConditions struct{ live, began bool }

func conditionsOf(stage *tree.Stage) stageConditions {
	reads := stage.ConditionReads()
	return stageConditions{AnyLive(reads), readsBegan(reads)}
}

// isVolatile reports whether live settings, or the time when the run began, affect the handler, apart from the conditions
// of its stage. Both are lost in a crash before the first checkpoint.
func (s *Step) isVolatile() bool {
	conditions := s.Handler.ConditionReads()
	return AnyLive(conditions) || s.Handler.Rollout != nil || readsBegan(conditions) || readsBegan(s.Handler.BodyReads())
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
	written := map[place]int{} // position of the last handler that writes it
	for _, s := range p.Steps {
		for _, w := range s.Writes {
			at, _ := placeOf(w.Path)
			written[at] = s.Position
		}
	}
	declared := map[string]int{} // by name, the index in Shared
	for i, n := range p.Shared {
		declared[n.Name] = i
	}
	// find returns the indexes of the names that are read here, and written by a handler from a position on.
	find := func(reads []datum.Read, from int) (found []int) {
		for _, r := range reads {
			at, whole := placeOf(r.Path)
			switch i, known := declared[at.name]; {
			case at.root != SharedRoot:
			case whole:
				found = found[:0]
				for i, n := range p.Shared {
					if last, ok := written[place{SharedRoot, n.Name}]; ok && last >= from {
						found = append(found, i)
					}
				}
				return found
			case known:
				if last, ok := written[at]; ok && last >= from {
					found = append(found, i)
				}
			}
		}
		slices.Sort(found)
		return slices.Compact(found)
	}
	for _, stage := range p.Stages {
		if len(stage.Steps) == 0 {
			continue
		}
		from := stage.Steps[0].Position
		ofStage := find(stage.Declared.ConditionReads(), from)
		names := p.names(ofStage)
		for _, s := range stage.Steps {
			s.Fleeting = names // most handlers have no conditions of their own, and share them
			if own := find(s.Handler.ConditionReads(), from); len(own) > 0 {
				both := slices.Concat(ofStage, own)
				slices.Sort(both)
				s.Fleeting = p.names(slices.Compact(both))
			}
		}
	}
}

// names returns the names of the shared state at these indexes.
func (p *Plan) names(indexes []int) []string {
	var out []string
	for _, i := range indexes {
		out = append(out, p.Shared[i].Name)
	}
	return out
}
