package flowtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/checkpoint"
	"procaas/engine/clock"
	"procaas/engine/guard"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/secrets"
	"procaas/engine/store"
	"procaas/engine/triggers"
)

const (
	longest1     = 366 * 24 * time.Hour // that a test may take, by the virtual clock
	maxRuns      = 1000                 // of one test
	seedFrom     = "procaas/test"       // the source of the events that make entities
	maxCalls     = 20_000               // of one test
	progressEach = 1000                 // calls
)

// defaultStart is when a test begins that does not say.
var defaultStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A Variant is a way to run a test. The zero Variant runs it as it is.
type Variant struct {
	CrashAt    int    // the checkpoint at which the node dies, from 1; 0 for none
	CrashAfter bool   // when the checkpoint has been written, not before
	Off        string // the path of a handler that is left out
}

// String names the variant. It is empty for the test as it is.
func (v Variant) String() string {
	switch {
	case v.Off != "":
		return "without " + v.Off
	case v.CrashAt > 0 && v.CrashAfter:
		return fmt.Sprintf("crash after checkpoint %d", v.CrashAt)
	case v.CrashAt > 0:
		return fmt.Sprintf("crash before checkpoint %d", v.CrashAt)
	}
	return ""
}

// A trial is one test while it runs, and what was seen.
type trial struct {
	suite   *Suite
	test    *Test
	variant Variant
	began   time.Time
	clock   *clock.Virtual
	v       *engine.Virtual
	stubs   engine.Stubs

	calls     []*Call
	emits     []Emit
	moves     []move
	handed    []*handed // the events of the test
	runs      []checkpoint.RunView
	answers   map[string]*answering // by path
	used      map[*Answer]bool
	emitters  map[string]string // paths of handlers, by run and type of event
	unhandled map[string]bool   // paths whose calls had no answer
	problems  []Difference

	spentNotes []string // answers of mocks that had been given as often as they may
	ended      time.Duration
	found      []Difference // by the judge
}

// A handed event is one of the test, and what became of it.
type handed struct {
	event   *Event
	ev      model.Event // as submitted
	run     string
	refused *intake.Error

	undecided bool // nobody could know whether the state will allow it
}

// An Emit is an event that a handler has emitted.
type Emit struct {
	model.Event // with the key that its flow computes
	Run         string
	Path        string // of the handler
}

// A move is a state that a run has left its entity in.
type move struct{ run, state string }

// try runs a test. Base is the trial of the test as it is; nil for itself.
func (s *Suite) try(ctx context.Context, test *Test, variant Variant, base *trial) (*trial, error) {
	return s.tryThen(ctx, test, variant, base, func(*trial) error { return nil })
}

// tryThen runs a test and looks at it while its store is there.
func (s *Suite) tryThen(ctx context.Context, test *Test, variant Variant, base *trial, then func(*trial) error) (*trial, error) {
	t := &trial{
		suite: s, test: test, variant: variant, began: test.Start.UTC(),
		answers: map[string]*answering{}, used: map[*Answer]bool{}, unhandled: map[string]bool{}, emitters: map[string]string{},
	}
	if test.Start.IsZero() {
		t.began = defaultStart
	}
	t.clock = clock.NewVirtual(t.began)
	var err error
	if s.stubs != nil {
		if t.stubs, err = s.stubs(); err != nil {
			return nil, err
		}
	}
	store := s.env.Store(t.clock.Now)
	defer store.Close()
	for i, e := range test.Entities {
		if err := t.seed(ctx, store, i, e); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Span, err)
		}
	}
	if err := t.open(ctx, store); err != nil {
		return nil, err
	}
	if err := t.play(ctx); err != nil {
		return nil, err
	}
	if t.runs, err = t.list(ctx); err != nil {
		return nil, err
	}
	t.found = t.judge(base)
	return t, then(t)
}

func (t *trial) open(ctx context.Context, store store.Store) (err error) {
	bundle, types := t.withMockedCalls()
	o := engine.VirtualOptions{
		Options: engine.Options{Store: store, Types: types, Bundle: bundle, Name: "test", Secrets: t.secret, Record: 100},
		Clock:   t.clock, Call: t.call, Saved: t.saved,
		CrashAt: t.variant.CrashAt, CrashAfter: t.variant.CrashAfter, MaxCalls: maxCalls,
	}
	if t.v, err = engine.NewVirtual(ctx, o); err != nil {
		return err
	}
	for _, configs := range []*expr.Value{t.suite.File.Configs, t.test.Configs} {
		if err := t.configure(ctx, configs); err != nil {
			return err
		}
	}
	if t.variant.Off != "" {
		off := guard.ControlChange{Mode: guard.ModeSkip, Forever: true}
		if _, err := t.v.Engine().SetControl(ctx, t.variant.Off, off, -1, by); err != nil {
			return err
		}
	}
	return t.control(ctx, t.test.Controls)
}

// by is who sets configs and controls.
var by = store.Actor{Name: "test"}

func (t *trial) secret(use secrets.Use) (string, error) {
	for _, known := range []map[string]string{t.test.Secrets, t.suite.File.Secrets} {
		if text, ok := known[use.Name]; ok {
			return text, nil
		}
	}
	return "", fmt.Errorf("the test gives no secret %s; add it below secrets", use.Name)
}

func (t *trial) configure(ctx context.Context, configs *expr.Value) error {
	for i, k := range configs.Keys() {
		value, _ := configs.Items()[i].Literal()
		if _, err := t.v.Engine().SetConfig(ctx, k.Name, value, -1, by); err != nil {
			return fmt.Errorf("%s: %w", k.Span, err)
		}
	}
	return nil
}

func (t *trial) control(ctx context.Context, controls map[string]*Control) error {
	for _, path := range slices.Sorted(maps.Keys(controls)) {
		c := controls[path]
		full := path
		if fits := t.suite.names.find(path); len(fits) == 1 {
			full = fits[0]
		}
		var err error
		if change, ok := c.change(); ok {
			_, err = t.v.Engine().SetControl(ctx, full, change, -1, by)
		} else {
			_, err = t.v.Engine().RemoveControl(ctx, full, -1, by)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.Key.Span, err)
		}
	}
	return nil
}

// change returns what the control sets; ok is false when there is to be none.
func (c *Control) change() (change guard.ControlChange, ok bool) {
	word := c.Switch
	if c.Word != "" {
		word = c.Word
	}
	change = guard.ControlChange{
		Enabled: word == "on", Forever: true, Force: c.Force, RateLimit: c.RateLimit, Over: c.Over, RolloutPercent: c.Rollout,
	}
	switch word {
	case "hold":
		change.Mode = guard.ModeHold
	case "off":
		change.Mode = guard.ModeSkip
	}
	return change, word != "on" || c.RateLimit != "" || c.Rollout != nil
}

// play lets the events and changes happen, each at its time, and what follows.
func (t *trial) play(ctx context.Context) (err error) {
	type step struct {
		at time.Duration
		do func() error
	}
	var steps []step
	at, fired := time.Duration(0), map[*tree.Trigger]time.Time{}
	for _, e := range t.test.Events {
		at = max(at, e.At)
		ev := model.Event{ID: e.ID, Source: e.Source, Type: e.Type, Key: e.Key, Priority: e.Priority}
		ev.Payload, _ = e.Payload.Literal()
		if e.fires != nil {
			from := t.began.Add(at - 1)
			if last := fired[e.fires]; last.After(from) {
				from = last
			}
			if ev, err = triggers.Firing(e.fires, from); err != nil {
				return err
			}
			if ev.Time.IsZero() {
				return fmt.Errorf("trigger %q does not fire for years", e.fires.ID)
			}
			fired[e.fires], at = ev.Time, ev.Time.Sub(t.began)
		}
		steps = append(steps, step{at, func() error { return t.hand(ctx, e, ev) }})
	}
	for _, c := range t.test.Changes {
		steps = append(steps, step{c.At, func() error { return t.change(ctx, c) }})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	for _, s := range steps {
		if err := t.v.Until(ctx, t.began.Add(s.at)); err != nil {
			return t.endless(err)
		}
		if err := s.do(); err != nil {
			return err
		}
	}
	limit := longest1
	if t.test.Until > 0 {
		limit = t.test.Until
	}
	next, err := t.drain(ctx, t.began.Add(limit))
	if err != nil {
		return t.endless(err)
	}
	t.ended = t.clock.Now().Sub(t.began)
	if !next.IsZero() && t.test.Until == 0 {
		t.problem(t.test.Span, Difference{
			Path: "until", Want: "an end within a year", Have: "something is left to do at " + next.Format(time.RFC3339),
			Note: "say when the test is to end: until: 1h",
		})
	}
	return nil
}

// drain works until nothing is left to do. After the crash of a variant, people look
// at calls whose end nobody knows, and let them be made again.
func (t *trial) drain(ctx context.Context, limit time.Time) (next time.Time, err error) {
	for {
		if next, err = t.v.Drain(ctx, limit); err != nil || t.variant.CrashAt == 0 {
			return next, err
		}
		runs, err := t.list(ctx)
		if err != nil {
			return next, err
		}
		retried := false
		for _, r := range runs {
			unknown := slices.ContainsFunc(r.Handlers, func(h checkpoint.HandlerView) bool { return h.Outcome == model.OutcomeUnknown })
			if r.Status == model.Parked && r.Due == nil && unknown {
				if _, err := t.v.Engine().Retry(ctx, r.ID, by); err != nil {
					return next, err
				}
				retried = true
			}
		}
		if !retried {
			return next, nil
		}
	}
}

// endless makes a finding of a flow that goes on forever.
func (t *trial) endless(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	t.problem(t.test.Span, Difference{Path: "until", Want: "an end", Have: err.Error()})
	return nil
}

func (t *trial) problem(at diag.Span, d Difference) {
	if d.Span.File == "" {
		d.Span = head(at)
	}
	t.problems = append(t.problems, d)
}

// hand hands an event in, which ev is for the engine.
func (t *trial) hand(ctx context.Context, e *Event, ev model.Event) error {
	h := &handed{event: e}
	if ev.ID == "" {
		ev.ID = fmt.Sprintf("event-%d", len(t.handed)+1)
	}
	if e.Delay > 0 {
		ev.At = t.clock.Now().Add(e.Delay)
		// Who sends an event again sends the same time.
		first := slices.IndexFunc(t.handed, func(f *handed) bool { return f.ev.ID == ev.ID && f.ev.Source == ev.Source })
		if first >= 0 && t.handed[first].event.Delay == e.Delay {
			ev.At = t.handed[first].ev.At
		}
	}
	h.ev = ev
	t.handed = append(t.handed, h)
	out, err := t.v.Engine().SubmitOwn(ctx, []intake.Submission{{Event: ev, Signed: true}})
	if err != nil {
		return err
	}
	if out[0].Err == nil {
		h.run, h.undecided = out[0].Receipt.Run, out[0].Receipt.Undecided
		return nil
	}
	if !errors.As(out[0].Err, &h.refused) {
		return out[0].Err
	}
	return nil
}

// change lets a change happen.
func (t *trial) change(ctx context.Context, c *Change) error {
	if err := t.configure(ctx, c.Configs); err != nil {
		return err
	}
	if err := t.control(ctx, c.Controls); err != nil {
		return err
	}
	if c.Crash {
		t.v.Crash()
	}
	if !c.Retry && c.Cancel == "" {
		return nil
	}
	runs, err := t.list(ctx)
	if err != nil {
		return err
	}
	for _, r := range runs {
		if c.Cancel != "" && (!r.Status.Ended() || r.Status == model.Failed) {
			if _, err := t.v.Engine().Cancel(ctx, r.ID, store.Actor{Name: "test", Reason: c.Cancel}); err != nil {
				return err
			}
		}
		if held := r.Status == model.Parked && r.Due == nil; c.Retry && (held || r.Status == model.Failed) {
			if _, err := t.v.Engine().Retry(ctx, r.ID, by); err != nil {
				return err
			}
		}
	}
	return nil
}

// list reads all runs, those accepted first, but the ones that made entities.
func (t *trial) list(ctx context.Context) ([]checkpoint.RunView, error) {
	e := t.v.Engine()
	runs, _, err := e.List(ctx, store.RunFilter{Limit: maxRuns, Oldest: true})
	runs = slices.DeleteFunc(runs, func(r checkpoint.RunView) bool { return r.Event.Source == seedFrom })
	for i := range runs { // a list has no payloads, and no states
		if err == nil {
			runs[i], err = e.RunByID(ctx, runs[i].ID)
		}
	}
	return runs, err
}

// saved notes what a checkpoint leaves: events and states.
func (t *trial) saved(c model.Change) {
	for _, in := range c.Emit {
		event := in.Event
		if in.Ordered {
			event.Key = in.Key
		}
		t.emits = append(t.emits, Emit{
			Event: event, Run: c.Run, Path: t.emitters[c.Run+" "+in.Event.Type],
		})
	}
	if c.State != "" {
		t.moves = append(t.moves, move{c.Run, c.State})
	}
}

// seed makes an entity as if a run had left it.
func (t *trial) seed(ctx context.Context, store store.Store, i int, e *Entity) error {
	node, err := store.Ledger.Join(ctx, "entities", time.Hour)
	if err != nil {
		return err
	}
	id := fmt.Sprintf("entity-%d", i+1)
	flow := t.suite.flow(e.Flow)
	out, err := store.Inbox.Accept(ctx, node, []model.Intake{{
		ID: id, Flow: flow.ID, Key: e.Key, Ordered: true, Own: true,
		Event: model.Event{ID: id, Source: seedFrom, Type: "entity", Time: t.clock.Now()},
	}})
	if err != nil {
		return err
	}
	if out[0].Err != nil || out[0].Claimed == nil {
		return errors.Join(errors.New("the entity cannot be made"), out[0].Err)
	}
	change := model.Change{Run: id, Version: out[0].Claimed.Version, Status: model.Succeeded, State: e.State}
	if data, ok := e.SharedState.Literal(); ok && data != nil {
		if change.Shared, err = datum.FormatKinds(data); err != nil {
			return err
		}
	}
	errs, err := store.Ledger.Commit(ctx, node, []model.Change{change})
	if err != nil {
		return err
	}
	return errors.Join(errs[0], store.Ledger.Leave(ctx, node, nil))
}

// flow finds a flow; the only one when the id is empty. Nil when there is none.
func (s *Suite) flow(id string) *tree.Flow {
	if id == "" && len(s.Bundle.Flows) == 1 {
		return s.Bundle.Flows[0]
	}
	return s.Bundle.Flow(id)
}

// head is the beginning of a span, for findings about the whole.
func head(at diag.Span) diag.Span {
	if at.End.Line > at.Start.Line {
		at.End = diag.Pos{Line: at.Start.Line, Column: at.Start.Column + 1}
	}
	return at
}
