package flowtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/engine"
	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/model"
)

// A Call is a call of a handler that was made in a test.
type Call struct {
	Path    string
	Run     string
	Attempt int
	Key     string // the Idempotency-Key
	Verify  bool   // it verifies another call
	At      time.Duration
	Took    time.Duration
	Method  string // of a request
	URL     string
	Request map[string]any // in the form for expressions; nil if nothing was sent
	Fields  map[string]any // of the handler
	Err     error
}

// An answering has the answers to the calls of one handler.
type answering struct {
	calls int
	given map[*Answer]int
	done  map[string]remembered // successful answers, by Idempotency-Key
}

// A remembered answer is repeated for a call with the same key, as services do.
type remembered struct {
	answer *Answer
	calls  int // number of calls when it was first given
}

// errNoAnswer fails a call without an answer in the test.
var errNoAnswer = errors.New("the test has no answer to this call")

// call makes one call of a handler; see [engine.VirtualOptions].
func (t *trial) call(ctx context.Context, task *core.Attempt, h engine.Handler, c *engine.Call) (model.Result, error) {
	fields, _ := task.Body.(map[string]any)
	call := &Call{
		Path: c.Path, Run: c.Run, Attempt: c.Attempt, Key: c.IdempotencyKey, Verify: task.Verify,
		At: t.clock.Now().Sub(t.began), Fields: fields,
	}
	t.calls = append(t.calls, call)
	if n := len(t.calls); n%progressEach == 0 && t.suite.env.Progress != nil {
		t.suite.env.Progress(t.suite.Name, t.test.Name, n, maxCalls)
	}
	w := &wire{trial: t, call: call}
	client := *c.HTTP
	client.Transport = w
	c.HTTP, c.Secured, c.Authorization = &client, nil, nil
	result, err := t.handle(ctx, task, h, c, w)
	call.Took, call.Err = clock.Passed(ctx), err
	for _, e := range result.Emit {
		t.emitters[c.Run+" "+e.Type] = c.Path
	}
	return result, err
}

// handle uses the mock of a handler that makes no requests, or calls the handler itself.
func (t *trial) handle(ctx context.Context, task *core.Attempt, h engine.Handler, c *engine.Call, w *wire) (model.Result, error) {
	switch alone := t.suite.env.Alone; {
	case t.suite.tells(c.Path) && t.mocks(c.Path) == nil:
		return model.Result{Status: http.StatusNoContent}, nil // most tests are not about who hears of an end
	case task.Type.Name == "request":
		return h.Handle(ctx, c)
	case t.mocks(c.Path) != nil:
	case len(alone) > 0 && !slices.Contains(alone, task.Type.Name):
		t.unanswered(w.call, "")
		return model.Result{}, model.Permanent(errNoAnswer)
	default:
		result, err := h.Handle(ctx, c)
		if errors.Is(err, engine.ErrNoNode) {
			t.unanswered(w.call, task.Type.Name+" "+expr.ShowValue(w.call.Fields))
			return model.Result{}, model.Permanent(errNoAnswer)
		}
		return result, err
	}
	whole := task.Type.Name == mockedCallName
	if whole {
		w.call.Fields = t.inputs(w.call)
	}
	env := datum.Env{"request": map[string]any(w.call.Fields)}
	a, err := t.pick(w.call, env)
	if err != nil {
		return model.Result{}, err
	}
	if a == nil {
		t.unanswered(w.call, "")
		return model.Result{}, model.Permanent(errNoAnswer)
	}
	if err := t.suffer(ctx, a); err != nil {
		if whole {
			err = model.Permanent(err) // a call retries inside, and has failed for good
		}
		return model.Result{}, err
	}
	reply, err := a.Reply.Eval(env)
	if err != nil {
		return model.Result{}, model.Permanent(err)
	}
	if a.Status >= 400 {
		err := a.fail(&model.StatusError{Status: a.Status, Method: "CALL", URL: c.Path})
		if whole {
			err = model.Permanent(err)
		}
		return model.Result{}, err
	}
	if whole {
		t.checkOutputs(c.Path, a, reply)
	}
	return model.Result{Response: reply, Status: a.Status}, nil
}

// mocks returns the answers for a handler: those of the test, or else of the file.
func (t *trial) mocks(path string) []*Answer {
	for _, m := range []map[string][]*Answer{t.test.Mocks, t.suite.File.Mocks} {
		name := longest(m, path)
		if name != "" && (name == path || !t.suite.tells(path)) {
			return m[name]
		}
	}
	return nil
}

// tells reports whether the handler at a path sends a notification. In tests it has only its full name.
func (s *Suite) tells(path string) bool {
	p := s.Bundle.Pipeline(model.PipelineOf(path))
	return p != nil && p.Sends != nil
}

// pick chooses the answer to a call. Its error fails the call and the test.
func (t *trial) pick(call *Call, env datum.Env) (*Answer, error) {
	state := t.answers[call.Path]
	if state == nil {
		state = &answering{given: map[*Answer]int{}, done: map[string]remembered{}}
		t.answers[call.Path] = state
	}
	state.calls++
	env["calls"] = state.calls
	if r, ok := state.done[call.Key]; ok && !call.Verify {
		env["calls"] = r.calls
		return r.answer, nil
	}
	answers := t.mocks(call.Path)
	var spent []int // conditional answers that were used up
	for i, a := range answers {
		if state.given[a] >= a.most() && i < len(answers)-1 {
			if a.When != nil {
				spent = append(spent, i)
			}
			continue
		}
		fits, err := a.fits(env)
		if err != nil {
			t.problem(a.Span, Difference{Path: "mocks." + a.Key.Name, Want: "an answer", Have: err.Error()})
			return nil, model.Permanent(errNoAnswer)
		}
		if !fits {
			continue
		}
		state.given[a]++
		t.used[a] = true
		t.noteSpent(answers, spent, env)
		if a.Crash && state.given[a] <= a.most() {
			t.v.Crash()
		} else if a.succeeds() {
			state.done[call.Key] = remembered{a, state.calls}
		}
		return a, nil
	}
	return nil, nil
}

// most returns how many calls an answer is for.
func (a *Answer) most() int {
	n, err := strconv.Atoi(a.Times)
	if err != nil { // any, or more than there are calls
		return math.MaxInt
	}
	return n
}

// noteSpent notes which of the used up answers would have matched the call, because people expect
// that these are repeated.
func (t *trial) noteSpent(answers []*Answer, spent []int, env datum.Env) {
	for _, i := range spent {
		a := answers[i]
		note := fmt.Sprintf("answer %d of %s fits a later call too, and has answered its %s. If it is for all such calls, write times: any",
			i+1, a.Key.Name, count(a.most(), "time"))
		if fits, err := a.fits(env); err == nil && fits && !slices.Contains(t.spentNotes, note) {
			t.spentNotes = append(t.spentNotes, note)
		}
	}
}

func (a *Answer) fits(env datum.Env) (bool, error) {
	if a.When == nil {
		return true, nil
	}
	v, err := a.When.Eval(env)
	return v == true, err
}

// succeeds reports whether a service would remember the call as done.
func (a *Answer) succeeds() bool { return a.Error == "" && a.Status < 400 }

// suffer waits for the latency of an answer, and returns its error.
func (t *trial) suffer(ctx context.Context, a *Answer) error {
	if err := clock.Sleep(ctx, a.Latency); err != nil {
		return err
	}
	if a.Error == "" {
		return nil
	}
	return a.fail(engine.FailAs(ctx, a.Error))
}

func (a *Answer) fail(err error) error {
	if a.Permanent {
		return model.Permanent(err)
	}
	return err
}

// A wire answers the requests of one call.
type wire struct {
	trial *trial
	call  *Call
}

// RoundTrip implements [http.RoundTripper].
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	request, err := engine.RequestData(r)
	if err != nil {
		return nil, err
	}
	if w.call.Request == nil {
		w.call.Request, w.call.Method, w.call.URL = request, r.Method, r.URL.String()
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	t, ctx := w.trial, r.Context()
	if t.mocks(w.call.Path) == nil {
		return w.ask(ctx, r)
	}
	env := datum.Env{"request": request}
	a, err := t.pick(w.call, env)
	if err != nil {
		return nil, err
	}
	if a == nil {
		return w.ask(ctx, r)
	}
	if err := t.suffer(ctx, a); err != nil {
		return nil, err
	}
	return a.response(r, env)
}

// ask asks a stub service. Without one the test fails.
func (w *wire) ask(ctx context.Context, r *http.Request) (*http.Response, error) {
	reply, ok, err := engine.Ask(ctx, w.trial.stubs, w.trial.suite.Bundle, r)
	if !ok {
		to := r.Method + " " + r.URL.String()
		if body, ok := w.call.Request["body"].(map[string]any); ok {
			to += " " + expr.ShowValue(body)
		}
		w.trial.unanswered(w.call, to)
		return nil, model.Permanent(errNoAnswer)
	}
	return reply, err
}

// unanswered reports a call without an answer, once per handler. to says what was called, and may be empty.
func (t *trial) unanswered(call *Call, to string) {
	if t.unhandled[call.Path] {
		return
	}
	t.unhandled[call.Path] = true
	why := "add one to the test, or below mocks of the file:"
	if t.mocks(call.Path) != nil {
		why = "no answer of its mock fits the request; add one without when:"
	}
	note := fmt.Sprintf("%s\n  mocks:\n    %s:\n      reply: {}", why, t.suite.names.short(call.Path))
	if to != "" {
		note += "   # to " + to
	}
	t.problem(t.test.Span, Difference{
		Path: "mocks", Want: "an answer to the call of " + call.Path, Have: "none", Note: note,
	})
}

// response makes the HTTP reply.
func (a *Answer) response(r *http.Request, env datum.Env) (*http.Response, error) {
	headers, err := a.Headers.Eval(env)
	if err != nil {
		return nil, model.Permanent(err)
	}
	header := http.Header{}
	names, _ := headers.(map[string]any)
	for name, value := range names {
		header.Set(name, fmt.Sprint(value))
	}
	reply, err := a.Reply.Eval(env)
	if err != nil {
		return nil, model.Permanent(err)
	}
	var body []byte
	switch text, isText := reply.(string); {
	case a.Reply == nil:
	case isText && header.Get("Content-Type") != "":
		body = []byte(text)
	default:
		header.Set("Content-Type", "application/json")
		if body, err = datum.FormatKinds(reply); err != nil {
			return nil, model.Permanent(err)
		}
	}
	return &http.Response{
		Status: strings.TrimSpace(fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status))), StatusCode: a.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: r,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}
