package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/engine/checkpoint"
	"procaas/engine/clock"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/records"
	"procaas/engine/settings"
	"procaas/engine/store"
)

// This file explains why a handler ran in a run, or did not, from stored data: the run's
// checkpoint, the definition it began with, and the audit of live settings. Nothing is stored for
// this purpose, so some values may be lost. The explanation says so, and never guesses.

// An Explanation says why a handler ran in a run, or did not.
type Explanation struct {
	Run       string                  `json:"run"`        // its id
	Pipeline  string                  `json:"pipeline"`   // of the run; for a called one, see Path
	Status    model.Status            `json:"status"`     // of the run
	Path      string                  `json:"path"`       // of the handler: pipeline/stage/handler
	Outcome   string                  `json:"outcome"`    // of the handler; absent if the run has not reached it
	DecidedBy string                  `json:"decided_by"` // a word for what decided, such as enabled or ran
	Summary   string                  `json:"summary"`    // for people
	At        *time.Time              `json:"at"`         // when it was decided; null before that
	Handler   *checkpoint.HandlerView `json:"handler"`    // null if the run has not reached it
	Tries     []TryView               `json:"tries"`      // the last attempts, if one has failed
	WaitedFor []WaitedFor             `json:"waited_for"` // handlers of its stage
	Decisions []Decision              `json:"decisions"`  // conditions, in the order of their evaluation
	Missing   []string                `json:"missing"`    // what is no longer known
	Now       []string                `json:"now"`        // what restricts the handler now
}

// A WaitedFor is a handler that must be decided first.
type WaitedFor struct {
	Path     string     `json:"path"`
	Why      string     `json:"why"`      // why it comes first, for people
	Outcome  string     `json:"outcome"`  // absent before it is reached
	Finished *time.Time `json:"finished"` // null before it is decided
}

// A Decision is one condition that decides whether the handler runs.
type Decision struct {
	What   string      `json:"what"`   // such as enabled, when of branch 2, or per of rate-limit
	Source string      `json:"source"` // as written, without !$
	File   string      `json:"file"`
	Line   int         `json:"line"` // from 1, like Column
	Column int         `json:"column"`
	Result string      `json:"result"` // true, false, error, unknown, or not_asked; of the value of a rate limit, that value
	Trace  *expr.Trace `json:"trace"`  // null if it was not evaluated
}

// reasonsBy maps prefixes of reasons to what has decided. Checkpoints keep reasons only as text for
// people. So add a new wording here, and keep the old one for runs that were saved before.
var reasonsBy = []struct{ begins, by string }{
	{"enabled is false", "enabled"},
	{"the stage is left out: ", "stage"},
	{"branch ", "branch"},
	{"switched off at ", "switch"},
	{"held at ", "switch"},
	{"rolled out to ", "rollout"},
	{"over its rate limit ", "limit"},
	{"over the limit ", "limit"},
	{"left out after ", "limit"},
	{"waits for ", "limit"},
	{"calls of ", "limit"},
	{"fallback", "fallback"},
	{"on-error ", "on_error"},
	{"done by run ", "rerun"},
}

// ErrNoHandler reports that a run's pipeline has no such handler.
var ErrNoHandler = errors.New("no such handler")

// maxExplained is how many runs a node explains at once. Evaluating conditions again takes
// processor time and memory that the node's work needs.
const maxExplained = 2

// An Explainer explains runs. Use [New] to make one.
type Explainer struct {
	runs     store.Runs
	audits   store.Audits
	library  *definitions.Library
	settings *settings.Settings
	present  func(path string) (effects []string, known bool)

	turns chan struct{} // held while explaining a run
}

// New makes an Explainer. present returns what restricts a handler of the current definition.
func New(s store.Store, l *definitions.Library, live *settings.Settings,
	present func(path string) (effects []string, known bool),
) *Explainer {
	return &Explainer{runs: s.Runs, audits: s.Audits, library: l, settings: live, present: present, turns: make(chan struct{}, maxExplained)}
}

// alone explains a run when it is its turn.
func (e *Explainer) alone(ctx context.Context, look func() error) error {
	select {
	case e.turns <- struct{}{}:
		defer func() { <-e.turns }()
	case <-ctx.Done():
		return fmt.Errorf("%w: the node looks into %d others at the same time", clock.ErrTooLong, maxExplained)
	}
	return look()
}

// inTime returns [clock.ErrTooLong] once ctx has ended.
func inTime(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", clock.ErrTooLong, ctx.Err())
	}
	return nil
}

// Explain explains why a handler ran in a run, or did not. The path may omit the pipeline, or the
// pipeline and the stage. It also finds handlers inside called pipelines and repeated stages. A ref
// such as p/s[2]>p/s/h names one element. The error is [store.ErrNotFound] for an unknown run,
// [ErrNoHandler] if its pipeline has no such handler, and [clock.ErrTooLong] if ctx ends first.
func (e *Explainer) Explain(ctx context.Context, run, path string) (out Explanation, err error) {
	err = e.alone(ctx, func() error {
		out, err = e.explain(ctx, run, path)
		return err
	})
	return out, err
}

func (e *Explainer) explain(ctx context.Context, run, path string) (Explanation, error) {
	x, err := e.explainer(ctx, run)
	if err != nil {
		return Explanation{}, err
	}
	in, err := named(x.plan, path)
	if err != nil {
		return Explanation{}, err
	}
	x.s = in[0].Step
	if len(in[0].within) > 0 || x.s.Undoes || in[0].item > 0 {
		return x.explainInside(in, path), nil
	}
	for _, saved := range x.saved.Handlers {
		if saved.Path == x.s.Path {
			x.saw = saved.Saw
		}
	}
	return x.explain(ctx)
}

// explainer reads the stored data of a run. It uses the definition that the run began with, because
// another one may have other conditions.
func (e *Explainer) explainer(ctx context.Context, run string) (explainer, error) {
	record, err := e.runs.Run(ctx, run)
	if err != nil {
		return explainer{}, fmt.Errorf("run %s: %w", run, err)
	}
	d := e.library.Present()
	// A run that has not begun has none: it will begin with the current one.
	if record.Bundle != "" {
		if d, err = e.library.Get(ctx, record.Bundle); err != nil {
			return explainer{}, fmt.Errorf("run %s: %w", run, err)
		}
	}
	plan := d.ByID[record.Pipeline]
	if plan == nil {
		return explainer{}, fmt.Errorf("run %s: %w: pipeline %s is not in its definition", run, ErrNoHandler, record.Pipeline)
	}
	x := explainer{in: e, d: d, plan: plan, record: record, view: records.View(record)}
	if len(record.Checkpoint) > 0 {
		if x.saved, err = checkpoint.Read(record.Checkpoint); err != nil {
			return explainer{}, err
		}
	}
	return x, nil
}

// named returns the handlers with a path or the end of one: a single one, or one for each place
// where its pipeline is called. An end that matches different paths is refused, because it must not
// guess.
func named(p *planner.Plan, name string) ([]inner, error) {
	var known []string
	var exact, fits []inner
	where, last := "", name
	if i := strings.LastIndex(name, model.IntoCall); i >= 0 {
		where, last = withoutItems(name[:i]), name[i+len(model.IntoCall):]
	}
	last, item := cutItem(last)
	all := placesIn(p, maxPlaces)
	for _, in := range all {
		if where != "" && !strings.HasSuffix("/"+in.where(), "/"+where) || item > 0 && in.Handler.ForEach == nil {
			continue
		}
		known = append(known, in.Path, in.Handler.ID)
		in.item = item
		if in.Path == last {
			exact = append(exact, in)
		} else if strings.HasSuffix(in.Path, "/"+last) {
			fits = append(fits, in)
		}
	}
	if len(exact) > 0 {
		return exact, nil
	}
	paths := map[string]bool{}
	for _, in := range fits {
		paths[in.Path] = true
	}
	if len(paths) == 1 {
		return fits, nil
	}
	message := fmt.Sprintf("pipeline %s has no handler %s", p.Pipeline.ID, name)
	if len(all) == maxPlaces {
		message += fmt.Sprintf(" among the first %d, which are all that is looked at: calls make too many", maxPlaces)
	}
	if len(paths) > 1 {
		message = fmt.Sprintf("pipeline %s has %d handlers %s; say %s", p.Pipeline.ID, len(paths), name, fits[0].Path)
	} else if near := diag.Suggest(last, known); near != "" && near != last {
		message += fmt.Sprintf("; did you mean %s?", near)
	}
	return nil, fmt.Errorf("%w: %s", ErrNoHandler, message)
}

// An explainer has what is known about one handler in one run.
type explainer struct {
	in     *Explainer
	d      *definitions.Definition // the run's first definition
	plan   *planner.Plan
	s      *planner.Step // the handler to explain
	record store.RunRecord
	saved  checkpoint.Run                      // zero before the first checkpoint
	view   checkpoint.RunView                  // of the record
	inner  map[string][]checkpoint.HandlerView // of the view, by place; made when needed
	saw    checkpoint.Values                   // values of the shared state when the handler was decided
	shown  int                                 // bytes of requests in a story so far
	out    Explanation
}

// explain explains one of the run's own handlers. For others, see [explainer.explainInside].
func (x *explainer) explain(ctx context.Context) (Explanation, error) {
	h := x.find(x.s.Path)
	x.out = Explanation{
		Run: x.record.ID, Pipeline: x.record.Pipeline, Status: x.record.Status, Path: x.s.Path, Outcome: "absent",
		Handler: h, Tries: []TryView{}, WaitedFor: []WaitedFor{}, Decisions: []Decision{}, Missing: []string{}, Now: []string{},
	}
	if h != nil {
		x.out.Outcome = h.Outcome
		x.out.At = h.Finished
		if h.Started != nil {
			x.out.At = h.Started // its conditions were evaluated before the first attempt
		}
	}
	if saved, ok := x.kept(x.s); ok {
		x.out.Tries = triesOf(saved, h)
	}
	x.waits()
	if err := x.decisions(ctx); err != nil {
		return x.out, err
	}
	x.judge(h)
	x.present()
	return x.out, nil
}

// present adds what restricts the handler now.
func (x *explainer) present() {
	if x.s.Loops {
		return // its handlers have switches and limits, the stage has none
	}
	if effects, ok := x.in.present(x.s.Path); ok {
		x.out.Now = append(x.out.Now, effects...)
	} else if !x.s.Undoes {
		x.out.Now = append(x.out.Now, "the present definition does not have it")
	}
}

// find returns the view of a handler, or nil if it was not reached.
func (x *explainer) find(path string) *checkpoint.HandlerView {
	i := slices.IndexFunc(x.view.Handlers, func(h checkpoint.HandlerView) bool { return h.Path == path })
	if i < 0 {
		return nil
	}
	return &x.view.Handlers[i]
}

// waits adds what must be decided before the handler.
func (x *explainer) waits() {
	for _, edge := range x.s.After() {
		w := WaitedFor{Path: edge.From.Path, Why: edge.Reason().Why, Outcome: "absent"}
		if h := x.find(edge.From.Path); h != nil {
			w.Outcome, w.Finished = h.Outcome, h.Finished
		}
		x.out.WaitedFor = append(x.out.WaitedFor, w)
	}
}

// judge says in one sentence what has decided.
func (x *explainer) judge(h *checkpoint.HandlerView) {
	say := func(by, format string, args ...any) {
		x.out.DecidedBy, x.out.Summary = by, fmt.Sprintf(format, args...)
	}
	if h == nil {
		say("not_reached", "%s", x.whyAbsent())
		return
	}
	by := "other"
	for _, r := range reasonsBy {
		if strings.HasPrefix(h.Reason, r.begins) {
			by = r.by
			break
		}
	}
	tries := "its first attempt"
	if h.Attempts > 1 && !h.RepeatsStage() {
		tries = fmt.Sprintf("attempt %d", h.Attempts)
		if saved, ok := x.kept(x.s); !ok || len(saved.Tries) < h.Attempts {
			x.missing("the errors of the first attempts are not kept; logs and traces have them")
		}
	}
	switch {
	case h.RepeatsStage() && h.Outcome != model.OutcomeSkipped:
		items := "its list was not known"
		if h.Items != nil {
			items = h.Items.String()
		}
		x.out.DecidedBy, x.out.Summary = map[string]string{model.OutcomeSucceeded: "ran", model.OutcomeFailed: "error"}[h.Outcome],
			"it is repeated for each element: "+items
		if h.Error != "" {
			x.out.Summary += "; " + h.Error
		}
		if x.out.DecidedBy == "" {
			x.out.DecidedBy = "waiting"
		}
	// The reason says why it was skipped: see reasonsBy.
	case h.Outcome == model.OutcomeSkipped:
		say(by, "it was left out: %s", h.Reason)
	case h.Outcome == model.OutcomeSucceeded && by == "on_error":
		say(by, "it failed, and its rules let the run go on: %s: %s", h.Reason, h.Error)
	case h.Outcome == model.OutcomeSucceeded && by == "rerun":
		say(by, "it was %s, which this run repeats from a later stage on", h.Reason)
	case h.Outcome == model.OutcomeSucceeded:
		say("ran", "it ran, and %s succeeded", tries)
	case h.Outcome == model.OutcomeFailed && h.Attempts == 0:
		say("error", "it failed before its first attempt: %s", h.Error)
	case h.Outcome == model.OutcomeFailed:
		say("error", "it ran, and gave up after %s: %s", tries, h.Error)
	case h.Outcome == model.OutcomeRunning:
		say("attempt", "%s is under way", tries)
	case h.Outcome == model.OutcomeUnknown:
		say("attempt", "nobody knows how %s ended", tries)
	case h.Reason != "":
		say(by, "it waits: %s", h.Reason)
	case h.Error != "":
		say("waiting", "%s failed, and it waits for the next: %s", tries, h.Error)
	default:
		say("waiting", "it waits for a time of its own")
	}
}

// whyAbsent returns why the run has not reached the handler.
func (x *explainer) whyAbsent() string {
	stage := x.plan.Stages[x.s.Stage].ID
	switch {
	case x.record.Status == model.Ignored:
		return "the run was ignored: " + x.record.Reason
	case len(x.record.Checkpoint) == 0:
		return "the run has not begun, or has not been saved yet"
	case x.record.FailedPath != "":
		return fmt.Sprintf("the run failed in %s before: %s", x.record.FailedPath, x.record.Error)
	case x.record.Status == model.Cancelled:
		return "the run was cancelled before: " + x.record.Reason
	case x.saved.Stage < x.s.Stage:
		return fmt.Sprintf("the run is in stage %s, and it is of stage %s", x.plan.Stages[x.saved.Stage].ID, stage)
	}
	for _, w := range x.out.WaitedFor {
		if w.Finished == nil {
			return fmt.Sprintf("it waits for %s: %s", w.Path, w.Why)
		}
	}
	return "it has not been looked at yet"
}

// missing adds once what is no longer known.
func (x *explainer) missing(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(x.out.Missing, text) {
		x.out.Missing = append(x.out.Missing, text)
	}
}
