package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/checkpoint"
	"procaas/engine/core"
	"procaas/engine/definitions"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/records"
)

// A Program is a definition for replaying runs.
type Program struct {
	def   *definitions.Definition
	types map[string]engine.HandlerType
	alone []string // types that reach only the run, and services
	stubs func() (engine.Stubs, error)
	real  bool
}

// An Env has what programs share.
type Env struct {
	Types []engine.HandlerType
	Alone []string // types that reach only the run, and services by HTTP; see [handlers.Alone]

	// Live makes safe calls without a recorded answer for real.
	Live bool
}

// NewProgram makes a Program. stubs makes services for each run, which answer requests without a
// recorded answer. It may be nil.
func NewProgram(b *tree.Bundle, env Env, stubs func() (engine.Stubs, error)) (*Program, error) {
	library := definitions.Library{
		Language: b.Language, Types: engine.Types(env.Types), Log: slog.New(slog.DiscardHandler), RunID: func(model.Event) string { return "" },
	}
	def, err := library.Add(b)
	if err != nil {
		return nil, err
	}
	p := ProgramOf(def, env)
	p.stubs = stubs
	return p, nil
}

// ProgramOf makes the Program of a definition. Real calls use its HTTP client.
func ProgramOf(def *definitions.Definition, env Env) *Program {
	p := &Program{def: def, types: map[string]engine.HandlerType{}, alone: env.Alone, real: env.Live}
	for _, t := range env.Types {
		p.types[t.Name] = t
	}
	return p
}

// A Played is the course of a run in a replay.
type Played struct {
	Refused string             // why there is no run: the event is refused, or no pipeline serves it; empty otherwise
	Run     checkpoint.RunView // at its end
	Writers map[string]Wrote   // last writers of names of the shared state
	State   string             // new state of its key; empty if unchanged
	Calls   []*Call            // in the order of their starts
	Emits   []Emit
	Took    time.Duration
	Stop    *Call // the call without a known answer on which all that follows depends; nil if the run has ended
}

// A Wrote is the handler that wrote a name of the shared state.
type Wrote struct {
	Path string
	At   time.Duration
}

// A Call is an attempt of a handler.
type Call struct {
	Ref     string // of [core.Attempt]
	Path    string
	Attempt int
	Verify  bool // it verifies another attempt
	At      time.Duration
	Method  string // of a request
	URL     string // of a request, without the query
	// Sent is what the call depends on: query, headers and body of a request, or the fields of
	// other calls.
	Sent    map[string]any
	Live    bool // it was made for real
	Assumed bool // there is no recorded answer; an empty one is assumed, which nothing reads

	secret bool // its request has one
}

// An Emit is an event that a handler has emitted.
type Emit struct {
	At    time.Duration
	Event model.Event
}

// key identifies a call in a run.
type key struct {
	ref     string
	attempt int
	verify  bool
}

// A trial is one run during its replay.
type trial struct {
	*Program
	ctx     context.Context //nolint:containedctx // a trial is as long as its call
	of      *records.Recorded
	answers map[key]*checkpoint.RecordedCall
	was     map[key]*Call     // the calls by the run's own version, if known
	left    map[string]string // why handlers were left out by others than their author, by path
	cut     map[string]cut    // handlers that were left out after some attempts, or held up until their deadline, by ref
	made    map[string]int    // number of attempts so far, by ref
	awaited []model.Pending   // the events that the run has awaited
	came    []time.Time       // when each of them came
	configs map[string]any

	services engine.Stubs // nil for none

	began time.Time
	now   time.Time
	run   *core.Run
	ends  []ended // of calls in flight, by time
	out   *Played
}

// A cut says after how many attempts a handler was left out, or held up until a time, and why.
type cut struct {
	attempts int
	why      string
	held     time.Time // zero if it was left out
}

// An ended is the outcome of a call that ends at a given time.
type ended struct {
	at      time.Time
	ref     string
	outcome core.Outcome
}

// Play replays a run. was is the run by its own version, or nil to replay that version itself. The
// error is that of ctx, or says that the recording cannot be read.
func (p *Program) Play(ctx context.Context, of *records.Recorded, was *Played) (*Played, error) {
	t := &trial{Program: p, ctx: ctx, of: of, out: &Played{}, answers: map[key]*checkpoint.RecordedCall{}, left: map[string]string{}}
	if was != nil {
		t.was = map[key]*Call{}
		for _, c := range was.Calls {
			t.was[c.key()] = c
		}
	}
	t.cut, t.made = map[string]cut{}, map[string]int{}
	t.began = of.Accepted
	if of.Started != nil {
		t.began = *of.Started
	}
	t.began = t.began.UTC()
	t.now = t.began
	if p.stubs != nil {
		var err error
		if t.services, err = p.stubs(); err != nil {
			return nil, err
		}
	}
	start, err := t.read()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", of.ID, err)
	}
	plan := t.choose(&start)
	if plan == nil {
		return t.out, nil
	}
	t.run = core.Begin(plan, start)
	if err := t.play(); err != nil {
		return nil, fmt.Errorf("run %s: %w", of.ID, err)
	}
	t.out.Took = t.now.Sub(t.began)
	if t.out.Stop != nil {
		return t.out, nil
	}
	return t.out, t.finish()
}

// read reads the recording.
func (t *trial) read() (core.Start, error) {
	r := &t.of.Recording
	payload, err := exact(t.of.Event.Payload)
	if err != nil {
		return core.Start{}, fmt.Errorf("payload: %w", err)
	}
	e := t.of.Event
	start := core.Start{
		ID: t.of.ID, Flow: t.of.Flow, Key: t.of.Key, State: t.of.State,
		Event: model.Event{ID: e.ID, Source: e.Source, Type: e.Type, Time: e.Time, Key: e.Key, Payload: payload},
	}
	for _, of := range []struct {
		raw  json.RawMessage
		into *map[string]any
	}{{r.Configs, &t.configs}, {r.Found, &start.Shared}} {
		if len(of.raw) == 0 {
			continue
		}
		v, err := datum.ParseJSON(of.raw)
		if err != nil {
			return start, err
		}
		*of.into, _ = v.(map[string]any)
	}
	for i := range r.Calls {
		c := &r.Calls[i]
		t.answers[key{c.Ref, c.Attempt, c.Verify}] = c
	}
	for i, e := range r.Events {
		payload, err := datum.ParseJSON(e.Payload)
		if err != nil {
			return start, err
		}
		event := model.Event{ID: e.ID, Source: e.Source, Type: e.Type, Time: e.Time, Key: e.Key, Payload: payload}
		t.awaited = append(t.awaited, model.Pending{Run: "awaited " + e.ID, Position: int64(i + 1), Event: event})
		t.came = append(t.came, t.began.Add(e.After))
	}
	for _, h := range t.of.Handlers {
		switch {
		case h.Outcome == model.OutcomeFailed:
			t.holdUp(&h)
		case h.Outcome != model.OutcomeSkipped || model.LeftByAuthor(h.Reason):
		case h.Attempts == 0:
			t.left[h.Path] = h.Reason
		default:
			t.cut[h.Ref()] = cut{attempts: h.Attempts, why: h.Reason}
		}
	}
	return start, nil
}

// slack is added to the time of a missed deadline. The clock of the deadline may begin later in a replay, when the run has begun.
const slack = time.Second

// holdUp lets a handler that has missed its deadline wait as it did, for a limit, a service or its turn.
func (t *trial) holdUp(h *checkpoint.HandlerView) {
	_, why, waited := strings.Cut(h.Error, core.WhileItWaited)
	switch {
	case !strings.HasPrefix(h.Error, core.MissedDeadline):
	case (waited || h.Attempts == 0) && h.Finished != nil:
		t.cut[h.Ref()] = cut{h.Attempts, why, h.Finished.UTC().Add(slack)}
	case h.Started != nil:
		t.cut[h.Ref()] = cut{0, why, h.Started.UTC()}
	}
}

// exact converts decoded JSON to data as expressions read it.
func exact(v any) (any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return datum.ParseJSON(raw)
}

// choose returns the pipeline of the run, or nil.
func (t *trial) choose(start *core.Start) *planner.Plan {
	declared := map[string]any{}
	for name, value := range t.def.Declared {
		declared[name] = value
		if was, ok := t.configs[name]; ok {
			declared[name] = was
		}
	}
	t.configs = declared
	in, err := intake.Route(t.def, start.Event)
	if err != nil {
		t.out.Refused = "the event is refused: " + strings.TrimSpace(err.Error())
		return nil
	}
	start.Flow, start.Key = in.Flow, in.Key
	flow := t.def.Bundle.Flow(in.Flow)
	if _, ok := planner.Transition(flow, start.State, start.Event.Type); !ok {
		t.out.Refused = fmt.Sprintf("state %s has no transition on %s", planner.StateOf(flow, start.State), start.Event.Type)
		return nil
	}
	plan, candidates, err := t.def.Choose(definitions.Arrival{
		Event: start.Event, Flow: in.Flow, Key: in.Key, State: start.State, Configs: t.configs,
	})
	switch {
	case err != nil:
		t.out.Refused = err.Error()
		return nil
	case plan == nil && candidates > 0:
		t.out.Refused = "when is false in all pipelines that serve " + start.Event.Type
	case plan == nil:
		t.out.Refused = "no pipeline serves " + start.Event.Type
	}
	return plan
}

// maxSteps bounds the steps of one run.
const maxSteps = 100_000

var errEndless = errors.New("it comes to no end")

// play advances the run until its end, or until its course is unknown.
func (t *trial) play() error {
	for range maxSteps {
		if err := t.ctx.Err(); err != nil {
			return err
		}
		t.listen()
		tasks := t.run.Ready(t.live())
		for t.listen() {
			tasks = append(tasks, t.run.Ready(t.live())...)
		}
		for _, e := range t.run.TakeEmits() {
			t.out.Emits = append(t.out.Emits, Emit{t.now.Sub(t.began), e})
		}
		for i := range tasks {
			t.call(&tasks[i])
		}
		if t.run.Status().Ended() || t.out.Stop != nil {
			return nil
		}
		next := t.next()
		if next.IsZero() {
			return errors.New("it waits for nothing")
		}
		if next.After(t.now) {
			t.now = next
		}
		if len(t.ends) > 0 && !t.ends[0].at.After(t.now) {
			e := t.ends[0]
			t.ends = t.ends[1:]
			t.run.Finish(e.ref, e.outcome, t.live())
		}
	}
	return errEndless
}

// live returns the live values for the core. Limits and fallbacks are those of the recording.
func (t *trial) live() core.Live {
	return core.Live{
		Now: t.now, Configs: t.configs,
		Off: func(s *planner.Step) (string, bool) { why, off := t.left[s.Path]; return why, off },
		Guard: func(a core.Ask) core.Verdict {
			c, ok := t.cut[a.Ref]
			if !ok || t.made[a.Ref] < c.attempts || !c.held.IsZero() && !t.now.Before(c.held) {
				return core.Verdict{}
			}
			return core.Verdict{Skip: c.held.IsZero(), Hold: c.held, Reason: c.why}
		},
	}
}

// listen offers the core the events that have come, and reports whether it has taken any.
func (t *trial) listen() bool {
	a, ok := t.run.Awaits()
	if !ok {
		return false
	}
	var pending []model.Pending
	for i, p := range t.awaited {
		if p.Position > a.Heard && !t.came[i].After(t.now) && slices.Contains(a.Types, p.Event.Type) {
			pending = append(pending, p)
		}
	}
	return len(pending) > 0 && t.run.Offer(pending, t.live())
}

// next returns when something happens next, or zero.
func (t *trial) next() time.Time {
	next := t.run.Next()
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if len(t.ends) > 0 {
		sooner(t.ends[0].at)
	}
	for _, at := range t.came {
		if at.After(t.now) {
			sooner(at)
		}
	}
	return next
}

// finish records the result of the run.
func (t *trial) finish() error {
	c := t.run.Change()
	v := &t.out.Run
	*v = checkpoint.RunView{
		ID: t.of.ID, Pipeline: c.Pipeline, Status: c.Status, FailedPath: c.FailedPath, Error: c.Error, ErrorClass: c.ErrorClass,
		SharedState: map[string]any{}, Started: &t.began,
	}
	t.out.State, t.out.Writers = c.State, map[string]Wrote{}
	saved, err := checkpoint.Read(c.Checkpoint)
	if err != nil {
		return err
	}
	for _, h := range saved.Handlers {
		w := Wrote{h.Path, max(0, h.Finished.Sub(t.began))}
		for _, s := range saved.Shared {
			if h.Replaces(s.Name) && w.At >= t.out.Writers[s.Name].At {
				t.out.Writers[s.Name] = w
			}
		}
	}
	return v.ReadCheckpoint(c.Checkpoint)
}
