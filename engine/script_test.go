package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/engine/checkpoint"
	"procaas/engine/core"
	"procaas/engine/diagram"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/records"
	"procaas/engine/store"
)

// The stories of testdata/engine use these commands. Each that moves
// the run asks Ready and saves, as the driver does, and shows what came of it.
//
//	pipeline                  the definition; shows the waits that the plan proves
//	plan format=F             the plan, as the command line shows it
//	entity [state=S]          what is known of the key: its shared state as JSON
//	event type=T              begins a run; the payload as JSON
//	finish PATH [error=E] [status=N] [permanent] [after=D] [until=D] [again=TEXT] [emit=T,...] [unsaved]
//	                          ends a call with the response given as JSON; E is
//	                          timeout, connection, a status or a text; unsaved
//	                          does not ask Ready and does not save
//	withdraw PATH             the call does not start after all
//	ready, tick D             go on, now or later
//	pending TYPE              an event that the run may be waiting for; the payload as JSON
//	off PATH, on PATH         the switch
//	skip PATH, hold PATH D [people], pass PATH   the guard; people: an operator holds it
//	config NAME               sets a config to the JSON
//	crash, resume             loses what is not saved, goes on from what is
//	retry, cancel, stop       what operators do; stop undoes what was done
//	state, handlers           the run as people see it
//	checkpoint                the last one saved
func TestStories(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "../testdata/engine", func(t *testing.T, path string) {
		t.Parallel()
		s := newScript()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			out, err := s.do(d)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			return out
		})
	})
}

type script struct {
	plans   []*planner.Plan
	plan    *planner.Plan // of the run
	run     *core.Run
	start   core.Start
	saved   store.RunRecord
	now     time.Time
	configs map[string]any
	off     map[string]bool
	verdict map[string]core.Verdict
	events  int64
	stopped bool // an operator wants that the resumed run undoes what it has done
	out     strings.Builder
}

func newScript() *script {
	return &script{
		now:     time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		configs: map[string]any{}, off: map[string]bool{}, verdict: map[string]core.Verdict{},
	}
}

// arg returns the i-th word after the command.
func arg(d *datadriven.TestData, i int) string {
	if i >= len(d.CmdArgs) {
		return ""
	}
	return d.CmdArgs[i].Key
}

// option returns the value of name=value.
func option(d *datadriven.TestData, name string) string {
	for _, a := range d.CmdArgs {
		if a.Key == name {
			return strings.Join(a.Vals, ",")
		}
	}
	return ""
}

func (s *script) do(d *datadriven.TestData) (string, error) {
	s.out.Reset()
	if s.plan == nil && d.Cmd != "pipeline" {
		return "", errors.New("the story has no pipeline")
	}
	var err error
	switch d.Cmd {
	case "pipeline":
		err = s.pipeline(d.Input)
	case "plan":
		if err := diagram.Write(&s.out, s.plan, diagram.Format(option(d, "format"))); err != nil {
			s.printf("error: %v", err)
		}
	case "entity":
		s.start.State = option(d, "state")
		err = s.entity(d.Input)
	case "event":
		err = s.event(d)
	case "finish":
		err = s.finish(d)
	case "withdraw":
		s.run.Withdraw(arg(d, 0), s.now)
		s.step()
	case "ready":
		s.step()
	case "pending":
		err = s.pending(d)
	case "tick":
		err = s.tick(arg(d, 0))
	case "off", "on", "skip", "hold", "pass":
		err = s.control(d)
	case "config":
		s.configs[arg(d, 0)], err = parse(d.Input)
	case "crash":
		s.run = nil
	case "resume":
		s.stopped = arg(d, 0) == "stopped"
		err = s.resume()
	case "retry":
		s.start.Generation++
		err = s.resume()
	case "stop":
		s.run.Stop("by an operator", s.now)
		s.step()
	case "cancel":
		s.run.Cancel("by an operator", s.now)
		s.save()
	case "state", "handlers", "checkpoint":
		err = s.show(d.Cmd)
	default:
		err = fmt.Errorf("there is no command %s", d.Cmd)
	}
	if s.out.Len() == 0 && err == nil {
		return "ok", nil
	}
	return s.out.String(), err
}

func parse(text string) (any, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	return datum.ParseJSON([]byte(text))
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func (s *script) pipeline(yaml string) error {
	plans, found, err := load(yaml)
	for _, d := range found {
		if d.Severity == diag.Error {
			err = errors.Join(err, fmt.Errorf("%s: %s", d.Span, d.Message))
		}
	}
	if err != nil {
		return err
	}
	s.plans, s.plan = plans, plans[0]
	for _, step := range s.steps() {
		for _, e := range step.After() {
			s.printf("%s after %s: %s", e.To.Handler.ID, e.From.Handler.ID, e.Reason().Why)
		}
	}
	return nil
}

// steps lists the handlers of all pipelines.
func (s *script) steps() []*planner.Step {
	var out []*planner.Step
	for _, plan := range s.plans {
		for _, stage := range plan.Stages {
			out = append(out, stage.Steps...)
		}
	}
	return out
}

func (s *script) entity(text string) error {
	v, err := parse(text)
	s.start.Shared, _ = v.(map[string]any)
	return err
}

func (s *script) event(d *datadriven.TestData) error {
	payload, err := parse(d.Input)
	s.start.ID, s.start.Flow, s.start.Key = "r1", "order", "o1"
	s.start.Event = model.Event{
		ID: "e1", Source: "test", Type: option(d, "type"), Time: s.now, Payload: payload,
	}
	for _, p := range s.plans {
		if p.Pipeline.ID == s.start.Event.Type {
			s.plan = p
		}
	}
	s.run = core.Begin(s.plan, s.start)
	s.step()
	return err
}

// live is what the run reads at every step.
func (s *script) live() core.Live {
	return core.Live{
		Now: s.now, Configs: s.configs,
		Off: func(step *planner.Step) (string, bool) {
			return "switched off", s.off[step.Path]
		},
		Guard: func(a core.Ask) core.Verdict { return s.verdict[a.Ref] },
	}
}

// step asks what may start and saves, in this order.
func (s *script) step() {
	tasks := s.run.Ready(s.live())
	s.save()
	for _, t := range tasks {
		body, err := datum.FormatJSON(t.Body)
		if err != nil {
			body = []byte(err.Error())
		}
		verb := "start"
		if t.Verify {
			verb = "verify"
		}
		left := ""
		if !t.Deadline.IsZero() {
			left = " left=" + t.Deadline.Sub(s.now).String()
		}
		s.printf("%s %s attempt=%d key=%.6s%s %s", verb, t.Ref(), t.Attempt, t.IdempotencyKey, left, body)
	}
}

// save does what a store does with a change.
func (s *script) save() {
	for _, h := range s.run.TakeEnded() {
		s.printf("%s", describe(h))
	}
	c := s.run.Change()
	for _, t := range c.Take {
		s.printf("take %s: %s", t.Run, t.Reason)
	}
	for _, e := range s.run.TakeEmits() {
		s.printf("emit %s id=%.6s source=%s", e.Type, e.ID, e.Source)
	}
	s.saved = store.RunRecord{
		ID: c.Run, Status: c.Status, Checkpoint: c.Checkpoint, Generation: s.start.Generation,
		FailedPath: c.FailedPath, Error: c.Error, Reason: c.Reason,
	}
	line := string(c.Status)
	if !c.Due.IsZero() {
		line += " for " + c.Due.Sub(s.now).String()
	}
	if len(c.Awaits) > 0 {
		line += fmt.Sprintf(" for %s behind %d", strings.Join(c.Awaits, " or "), c.Heard)
	}
	if c.Error != "" {
		line += ": " + c.Error
	}
	if c.Reason != "" {
		line += " " + c.Reason
	}
	if c.State != "" {
		line += " state=" + c.State
		s.start.State = c.State
	}
	if c.Shared != nil {
		line += " keeps " + string(c.Shared)
		kept, _ := parse(string(c.Shared))
		if s.start.Shared == nil {
			s.start.Shared = map[string]any{}
		}
		maps.Copy(s.start.Shared, kept.(map[string]any))
	}
	s.printf("%s", line)
}

func describe(h checkpoint.HandlerView) string {
	line := h.Outcome + " " + h.Path
	if h.Within != "" {
		line += " in " + h.Within
	}
	if h.Items != nil {
		line += fmt.Sprintf(" (%s)", h.Items)
	}
	if h.Attempts > 1 {
		line += fmt.Sprintf(" after %d attempts", h.Attempts)
	}
	if h.Error != "" {
		line += ": " + h.Error
	}
	if h.Reason != "" {
		line += ": " + h.Reason
	}
	return line
}

func (s *script) finish(d *datadriven.TestData) error {
	response, err := parse(d.Input)
	if err != nil {
		return err
	}
	o := core.Outcome{Result: model.Result{Response: response}, Err: failure(option(d, "error"))}
	if status, ok := errors.AsType[*model.StatusError](o.Err); ok {
		status.Body = response
	}
	unsaved := false
	for _, a := range d.CmdArgs[1:] {
		switch a.Key {
		case "permanent":
			o.Err = model.Permanent(o.Err)
		case "unsaved":
			unsaved = true
		case "status":
			o.Result.Status, err = strconv.Atoi(a.Vals[0])
			if err != nil {
				return err
			}
		case "again":
			o.Result.Again = a.Vals[0]
		case "emit":
			for _, typ := range a.Vals {
				o.Result.Emit = append(o.Result.Emit, model.Event{Type: typ})
			}
		case "after", "until":
			wait, err := time.ParseDuration(a.Vals[0])
			if err != nil {
				return err
			}
			if a.Key == "until" {
				o.Result.Until = s.now.Add(wait)
			} else {
				o.Err = model.AfterAtLeast(wait, o.Err)
			}
		}
	}
	s.run.Finish(arg(d, 0), o, s.live())
	if !unsaved {
		s.step()
	}
	return nil
}

// failure makes the error for a word.
func failure(word string) error {
	status, err := strconv.Atoi(word)
	switch {
	case word == "":
		return nil
	case word == "timeout":
		return context.DeadlineExceeded
	case word == "connection":
		return syscall.ECONNREFUSED
	case err == nil:
		return &model.StatusError{Status: status, Method: "POST", URL: "http://svc/"}
	}
	return errors.New(word)
}

func (s *script) pending(d *datadriven.TestData) error {
	payload, err := parse(d.Input)
	s.events++
	s.run.Offer([]model.Pending{{
		Run: fmt.Sprintf("w%d", s.events), Position: s.events,
		Event: model.Event{ID: fmt.Sprintf("x%d", s.events), Source: "test", Type: arg(d, 0), Time: s.now, Payload: payload},
	}}, s.live())
	s.step()
	return err
}

func (s *script) tick(by string) error {
	d, err := time.ParseDuration(by)
	s.now = s.now.Add(d)
	s.step()
	return err
}

func (s *script) control(d *datadriven.TestData) error {
	path := arg(d, 0)
	switch d.Cmd {
	case "off", "on":
		s.off[path] = d.Cmd == "off"
	case "skip":
		s.verdict[path] = core.Verdict{Skip: true, Reason: "over the rate limit"}
	case "pass":
		delete(s.verdict, path)
	case "hold":
		wait, err := time.ParseDuration(arg(d, 1))
		s.verdict[path] = core.Verdict{Hold: s.now.Add(wait), Reason: "rate limit"}
		if arg(d, 2) == "people" {
			s.verdict[path] = core.Verdict{Hold: s.now.Add(wait), Reason: "held by an operator", People: true}
		}
		return err
	}
	return nil
}

func (s *script) resume() error {
	run, err := core.Resume(s.plan, s.start, s.saved.Checkpoint)
	if err != nil {
		s.printf("error: %v", err)
		return nil
	}
	if s.run = run; s.stopped {
		run.Stop("by an operator", s.now)
	}
	s.step()
	return nil
}

func (s *script) show(what string) error {
	v := records.View(s.saved)
	switch what {
	case "state":
		text, err := datum.FormatJSON(v.SharedState)
		s.printf("%s", text)
		return err
	case "handlers":
		for _, h := range v.Handlers {
			s.printf("%s", describe(h))
		}
	case "checkpoint":
		var b bytes.Buffer
		err := json.Indent(&b, s.saved.Checkpoint, "", "  ")
		s.printf("%s", b.String())
		return err
	}
	return nil
}
