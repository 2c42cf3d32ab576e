package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/secrets"
)

// A Story is a run with everything that is known: what each handler did and why, and what that
// changed. It says what is not known, and never guesses.
type Story struct {
	Run     checkpoint.RunView
	Stages  []StoryStage // all of the pipeline, including those that the run has not reached
	Missing []string     // what is no longer known
}

// A StoryStage is one stage of a story.
type StoryStage struct {
	ID      string
	Steps   []StoryStep   // in declared order; those inside calls and repeated stages follow their own
	Changes []StateChange // of the shared state, from before the stage to after it
}

// A StoryStep is one handler in a story.
type StoryStep struct {
	Path      string
	Critical  bool
	Outcome   string                  // absent if the run has not reached it
	Summary   string                  // why it ran or not, for people
	Handler   *checkpoint.HandlerView // nil if the run has not reached it
	WaitedFor []WaitedFor             // handlers of its stage
	Tries     []TryView               // the last ones, if one has failed
	Changes   []StateChange           // by this handler

	Request      any    // rebuilt from the definition; secrets are hidden
	RequestGone  string // why it cannot be rebuilt; empty for a handler without request
	Response     any    // nil also if it was null: see ResponseGone
	ResponseGone string // why there is none
	Status       int    // of the reply; 0 for none
}

// A TryView is an attempt.
type TryView struct {
	Number int        `json:"number"` // from 1
	Began  time.Time  `json:"began"`
	Ended  *time.Time `json:"ended"` // null while in flight
	Error  string     `json:"error"` // empty on success or in flight
}

// triesOf lists the stored attempts of a handler.
func triesOf(saved checkpoint.Record, h *checkpoint.HandlerView) []TryView {
	out := []TryView{}
	for k, t := range saved.Tries {
		view := TryView{Number: saved.Attempts - len(saved.Tries) + 1 + k, Began: t.Began, Ended: model.TimeOrNil(t.Ended), Error: t.Error}
		if view.Ended == nil && k == len(saved.Tries)-1 {
			view.Ended = h.Finished
		}
		out = append(out, view)
	}
	return out
}

// A StateChange is a change of a name of the shared state.
type StateChange struct {
	Name          string
	Before, After StateValue
}

// A StateValue is a value, or why it is not known.
type StateValue struct {
	Value any
	Gone  string // why it is not known; empty if it is
}

// Story returns the story of a run. The error is [store.ErrNotFound] for an unknown run,
// [ErrNoHandler] if its definition no longer has its pipeline, and [clock.ErrTooLong] if ctx ends first.
func (e *Explainer) Story(ctx context.Context, run string) (out Story, err error) {
	err = e.alone(ctx, func() error {
		out, err = e.story(ctx, run)
		return err
	})
	return out, err
}

func (e *Explainer) story(ctx context.Context, run string) (Story, error) {
	x, err := e.explainer(ctx, run)
	if err != nil {
		return Story{}, err
	}
	story := Story{Run: x.view}
	places := maxPlaces // places that the run may not have reached
	for _, stage := range x.plan.Stages {
		st := StoryStage{ID: stage.ID}
		for _, s := range stage.Steps {
			step, err := x.step(ctx, s)
			if err != nil {
				return Story{}, err
			}
			st.Steps = append(st.Steps, step)
			inside := x.inside(s, places)
			st.Steps, places = append(st.Steps, inside...), max(0, places-len(inside))
			if err := inTime(ctx); err != nil {
				return Story{}, err
			}
		}
		if len(stage.Steps) > 0 {
			first := stage.Steps[0].Position
			st.Changes = x.changes(first, first+len(stage.Steps))
		}
		story.Stages = append(story.Stages, st)
	}
	for _, name := range x.saved.Wrote {
		if !slices.ContainsFunc(x.saved.Handlers, func(h checkpoint.Record) bool { return h.Replaces(name) }) {
			story.Missing = append(story.Missing, fmt.Sprintf("which handler set %s: the run is of a version that did not keep it, or was "+
				"retried since", name))
		}
	}
	return story, nil
}

// step returns the step of a handler.
func (x *explainer) step(ctx context.Context, s *planner.Step) (StoryStep, error) {
	x.s, x.saw, x.out = s, nil, Explanation{}
	h := x.find(s.Path)
	step := StoryStep{Path: s.Path, Critical: s.Handler.IsCritical(), Outcome: "absent", Handler: h}
	x.waits()
	x.judge(h)
	step.Summary, step.WaitedFor = x.out.Summary, x.out.WaitedFor
	if h == nil {
		return step, nil
	}
	x.out.Handler, x.out.At = h, h.Finished
	if h.Started != nil {
		x.out.At = h.Started
	}
	step.Outcome = h.Outcome
	i := slices.IndexFunc(x.saved.Handlers, func(r checkpoint.Record) bool { return r.Path == s.Path })
	saved := x.saved.Handlers[i]
	step.Tries = triesOf(saved, h)
	for _, c := range x.changes(s.Position, s.Position+1) {
		if saved.Replaces(c.Name) {
			step.Changes = append(step.Changes, c)
		}
	}
	return step, x.called(ctx, &step, s, saved)
}

// called fills in the request and the response of a handler.
func (x *explainer) called(ctx context.Context, step *StoryStep, s *planner.Step, saved checkpoint.Record) error {
	step.Status = saved.Status
	if value, err := datum.ParseJSON(saved.Response); err == nil {
		step.Response = value
	} else if saved.Outcome == model.OutcomeSucceeded {
		step.ResponseGone = "it is not kept, since nothing later reads it"
	}
	switch {
	case s.Handler.Await != nil || s.Computes() || saved.Attempts == 0:
		return nil
	case s.Handler.ForEach != nil:
		step.RequestGone = "there was one for each item"
		return nil
	}
	env, err := x.env(ctx, s.Handler.Body.Reads(), s.Position)
	if err != nil {
		return err
	}
	for _, read := range s.Handler.Body.Reads() {
		if why := lostIn(map[string]any(env), read.Path); why != "" {
			step.RequestGone = fmt.Sprintf("%s is not known any more: %s", strings.Join(read.Path, "."), why)
			return nil
		}
	}
	body, err := s.Handler.Body.Eval(env)
	if err != nil {
		step.RequestGone = err.Error()
		return nil
	}
	body = secrets.Shown(body)
	text, err := datum.FormatJSON(body)
	if err != nil {
		step.RequestGone = err.Error()
		return nil
	}
	x.shown += len(text)
	if x.shown > maxRequests {
		step.RequestGone = "the requests of the run have more than 4 MiB together"
		return nil
	}
	step.Request = body
	return nil
}

// maxRequests bounds the rebuilt requests of a story, in bytes of JSON.
const maxRequests = 4 << 20

// lostIn returns why the value of a path is not known, or empty.
func lostIn(v any, path datum.Path) string {
	if u, lost := v.(datum.Unknown); lost {
		return u.Why
	}
	m, ok := v.(map[string]any)
	if !ok {
		return ""
	}
	if len(path) > 0 {
		if next, ok := m[path[0]]; ok {
			return lostIn(next, path[1:])
		}
		return ""
	}
	for _, next := range m {
		if why := lostIn(next, nil); why != "" {
			return why
		}
	}
	return ""
}

// changes returns the changes of the shared state by handlers between two positions.
func (x *explainer) changes(from, to int) (out []StateChange) {
	for _, n := range x.plan.Shared {
		changed := slices.ContainsFunc(x.plan.Steps[from:to], func(s *planner.Step) bool { r, ok := x.kept(s); return ok && r.Replaces(n.Name) })
		if changed {
			out = append(out, StateChange{Name: n.Name, Before: x.valueAt(n.Name, from), After: x.valueAt(n.Name, to)})
		}
	}
	return out
}

// kept returns the stored record of a handler.
func (x *explainer) kept(s *planner.Step) (checkpoint.Record, bool) {
	i := slices.IndexFunc(x.saved.Handlers, func(r checkpoint.Record) bool { return r.Path == s.Path })
	if i < 0 {
		return checkpoint.Record{}, false
	}
	return x.saved.Handlers[i], true
}

// valueAt returns a name of the shared state as it was before a position.
func (x *explainer) valueAt(name string, position int) StateValue {
	raw, known := x.replaced(name, position)
	if !known {
		for _, s := range x.plan.Steps[position:] {
			if r, ok := x.kept(s); ok && r.Replaces(name) {
				return StateValue{Gone: fmt.Sprintf("%s replaced it, and it was too large to be kept", s.Path)}
			}
		}
		raw, _ = x.saved.Shared.Get(name)
	}
	value, err := datum.ParseJSON(raw)
	if err != nil {
		return StateValue{Gone: err.Error()}
	}
	return StateValue{Value: value}
}

// replaced returns what a name of the shared state was before a position, when a handler
// from there on has replaced it. Handlers that write one name never run at the same
// time, so that the first of them found the value of that time.
func (x *explainer) replaced(name string, position int) (json.RawMessage, bool) {
	for _, s := range x.plan.Steps[min(position, len(x.plan.Steps)):] {
		if r, ok := x.kept(s); ok && r.Replaces(name) {
			return r.Was.Get(name)
		}
	}
	return nil, false
}
