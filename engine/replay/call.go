package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/engine"
	"procaas/engine/checkpoint"
	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/secrets"
)

// This file makes and answers the calls of a replayed run.

var (
	errStop    = errors.New("the recording has no answer")
	errAssumed = errors.New("the recording has no answer, and nobody reads it")
)

// maxReply is the default bound of a response.
const maxReply = 1 << 20

// call makes one attempt, and stores when it ends.
func (t *trial) call(a *core.Attempt) {
	if t.out.Stop != nil || a.Beside {
		return
	}
	c := &Call{Ref: a.Ref(), Path: a.Step.Path, Attempt: a.Attempt, Verify: a.Verify, At: t.now.Sub(t.began)}
	if a.Type.Name == "request" || !slices.Contains(t.alone, a.Type.Name) {
		t.out.Calls = append(t.out.Calls, c)
	}
	t.made[c.Ref]++
	pace := &clock.Pace{Began: t.now}
	ctx := clock.Paced(t.ctx, pace)
	left := time.Duration(0)
	if !a.Deadline.IsZero() {
		left = max(a.Deadline.Sub(t.now), 1)
	}
	if left > 0 && (a.Timeout == 0 || left < a.Timeout) {
		a.Timeout = left
	}
	if a.Timeout > 0 {
		limited, cancel := clock.WithTimeout(ctx, a.Timeout)
		defer cancel()
		ctx = limited
	}
	recorded := t.answers[key{c.Ref, c.Attempt, c.Verify}]
	result, err := t.handle(ctx, a, c, recorded, left)
	switch {
	case errors.Is(err, errStop):
		t.out.Stop = c
		return
	case errors.Is(err, errAssumed):
		c.Assumed = true
		result, err = model.Result{Status: http.StatusOK}, nil
	case err == nil:
		err = t.check(a, result)
	}
	e := ended{t.now.Add(pace.Passed), a.Ref(), core.Outcome{Result: result, Err: engine.Classify(err)}}
	if recorded != nil {
		e.outcome.Probe = recorded.Probe
	}
	at := len(t.ends) // after those of the same time
	for at > 0 && t.ends[at-1].at.After(e.at) {
		at--
	}
	t.ends = slices.Insert(t.ends, at, e)
}

// handle runs a handler that reaches only services, and returns the recorded result of others.
func (t *trial) handle(
	ctx context.Context, a *core.Attempt, c *Call, recorded *checkpoint.RecordedCall, left time.Duration,
) (model.Result, error) {
	hidden := secrets.New(func(s datum.Secret) (string, error) {
		c.secret = true
		return "(secret " + s.Name + ")", nil
	})
	fields, _ := secrets.Shown(a.Body).(map[string]any)
	if !slices.Contains(t.alone, a.Type.Name) {
		c.Sent = fields
		if recorded == nil {
			return model.Result{}, t.unknown(a)
		}
		return given(ctx, recorded)
	}
	h := t.types[a.Type.Name].New()
	if err := a.Type.Spec.Decode(a.Body, h); err != nil {
		return model.Result{}, model.Permanent(err)
	}
	format, _ := fields["response"].(string)
	w := &wire{trial: t, attempt: a, call: c, recorded: recorded, format: format}
	return h.Handle(ctx, &engine.Call{
		Path: c.Path, Run: t.of.ID, Flow: t.of.Flow, Key: t.of.Key, Event: model.Event{ID: t.of.Event.ID}, Attempt: c.Attempt,
		Timeout: a.Own, TimeLeft: left, IdempotencyKey: a.IdempotencyKey, Now: t.now, Bundle: t.def.Bundle,
		HTTP: &http.Client{Transport: w}, Log: slog.New(slog.DiscardHandler), Resolve: hidden.Resolve, Hide: hidden.Hide, MaxReply: maxReply,
	})
}

// unknown handles a call without a recorded answer. If nothing reads the answer, the run continues
// as if it had succeeded.
func (t *trial) unknown(a *core.Attempt) error {
	if a.Step.Gathers || a.Verify {
		return errStop
	}
	return errAssumed
}

// check checks a result against its declared schemas.
func (t *trial) check(a *core.Attempt, result model.Result) error {
	if !a.Verify {
		if err := a.Step.Handler.CheckResponse(t.ctx, result.Status, result.Response); err != nil {
			return err
		}
	}
	for _, e := range result.Emit {
		if _, err := intake.Route(t.def, e); err != nil {
			return model.Permanent(fmt.Errorf("emitted event %s: %w", e.Type, err))
		}
		if err := t.def.Bundle.Event(e.Type).Contract().CheckContext(t.ctx, e.Payload); err != nil {
			return model.Permanent(fmt.Errorf("emitted event %s: %w", e.Type, err))
		}
	}
	return nil
}

// given returns the recorded result of a call after its time.
func given(ctx context.Context, r *checkpoint.RecordedCall) (model.Result, error) {
	if r.Error != "" {
		return model.Result{}, failure(ctx, r)
	}
	if err := clock.Sleep(ctx, r.Took); err != nil {
		return model.Result{}, err
	}
	response, err := datum.ParseJSON(r.Response)
	return model.Result{Response: response, Status: r.Status}, err
}

// failure returns the error of a recorded call. A timeout takes as long as the call may.
func failure(ctx context.Context, r *checkpoint.RecordedCall) error {
	if r.Class == "timeout" {
		return engine.FailAs(ctx, r.Class)
	}
	if err := clock.Sleep(ctx, r.Took); err != nil {
		return err
	}
	var err error
	if status, notStatus := strconv.Atoi(r.Class); notStatus == nil {
		body, _ := datum.ParseJSON(r.Response)
		err = &model.StatusError{Status: status, Method: "CALL", URL: r.Ref, Body: body}
	} else if r.Class == "connection" {
		err = engine.FailAs(ctx, r.Class)
	} else {
		err = model.WithClass(r.Class, errors.New(r.Error))
	}
	if _, answered := errors.AsType[*model.StatusError](err); answered && r.After > 0 {
		err = model.AfterAtLeast(r.After, err)
	} else if r.After > 0 {
		err = model.After(r.After, err)
	}
	if r.Permanent {
		err = model.Permanent(err)
	}
	return err
}

// A wire answers the request of one call.
type wire struct {
	trial    *trial
	attempt  *core.Attempt
	call     *Call
	recorded *checkpoint.RecordedCall
	format   string // how the handler reads the reply
}

// RoundTrip implements [http.RoundTripper].
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	t, ctx := w.trial, r.Context()
	var sent []byte
	if r.Body != nil {
		var err error
		if sent, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(sent))
	}
	data, err := engine.RequestData(r)
	if err != nil {
		return nil, err
	}
	w.call.Method, w.call.URL = r.Method, r.URL.Scheme+"://"+r.URL.Host+r.URL.Path
	w.call.Sent = map[string]any{"query": data["query"], "headers": written(data["headers"]), "body": data["body"]}
	rec := w.recorded
	r.Body = io.NopCloser(bytes.NewReader(sent))
	if rec != nil && w.safe(r) && w.changed() {
		return w.ask(r)
	}
	if rec == nil {
		if reply, ok, err := engine.Ask(ctx, t.services, t.def.Bundle, r); ok {
			return reply, err
		}
		if w.safe(r) {
			return w.ask(r)
		}
		return nil, t.unknown(w.attempt)
	}
	status, notStatus := strconv.Atoi(rec.Class)
	if rec.Error != "" && notStatus != nil {
		return nil, failure(ctx, rec)
	}
	if err := clock.Sleep(ctx, rec.Took); err != nil {
		return nil, err
	}
	header := http.Header{}
	if rec.Error == "" {
		status = rec.Status
	} else if rec.After > 0 {
		header.Set("Retry-After", strconv.Itoa(int(math.Ceil(rec.After.Seconds()))))
	}
	body := w.body(rec, header)
	return &http.Response{
		Status: strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status))), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: r,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

// body makes the body of a reply, so that the handler reads it as it did.
func (w *wire) body(rec *checkpoint.RecordedCall, header http.Header) []byte {
	value, err := datum.ParseJSON(rec.Response)
	text, isText := value.(string)
	switch {
	case err != nil, value == nil && w.format != "json":
		return nil
	case isText && w.format != "json":
		header.Set("Content-Type", "text/x-recorded") // not read as JSON
		return []byte(text)
	}
	header.Set("Content-Type", "application/json")
	return rec.Response
}

// written removes the headers of the engine and of HTTP.
func written(headers any) map[string]any {
	out := map[string]any{}
	all, _ := headers.(map[string]any)
	for name, value := range all {
		switch {
		case name == "idempotency-key", name == "traceparent", name == "tracestate", strings.HasPrefix(name, "x-procaas-"):
		default:
			out[name] = value
		}
	}
	return out
}
