package engine

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
	"unicode"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/node"
	"procaas/engine/outbound"
	"procaas/engine/secrets"
)

// maxReply is the largest accepted response body in bytes, unless the handler sets its own bound.
const maxReply = 1 << 20

// An attempt is the call of a handler, with the secrets that it looks up.
type attempt struct {
	e       *Engine
	t       *node.Call
	secrets secrets.Set
	call    Call
}

// call fills the handler and calls it. A panic becomes a permanent failure of the handler.
func (e *Engine) call(ctx context.Context, t *node.Call) (result model.Result, err error) {
	a := &attempt{e: e, t: t}
	a.secrets.Source = a
	defer func() {
		if p := recover(); p != nil {
			what := a.secrets.Hide(fmt.Sprint(p))
			t.Log.Error("handler panicked", "panic", what, "stack", string(debug.Stack()))
			err = model.Permanent(fmt.Errorf("handler panicked: %s", what))
		}
	}()
	h := e.handlers[t.Type.Name].New()
	if err := fill(h, t); err != nil {
		return model.Result{}, model.Permanent(err)
	}
	a.call = Call{
		Path: t.Step.Path, Run: t.Run.ID, Flow: t.Run.Flow, Key: t.Run.Key, Event: t.Run.Event,
		Attempt: t.Attempt.Attempt, Again: t.Again, Timeout: t.Own, TimeLeft: t.TimeLeft,
		IdempotencyKey: t.IdempotencyKey, TraceParent: t.TraceParent, TraceState: t.TraceState, Now: t.Now,
		Bundle: t.Definition.Bundle, HTTP: t.Definition.Client, Secured: t.Definition.Secured, Node: t.Node, Documents: e.o.Store.Documents,
		RunStatus: e.runStatus, Memory: &e.memory, Log: t.Log, Resolve: a.secrets.Resolve, Hide: a.secrets.Hide, MaxReply: maxReply,
		Reserve: t.Reserve, Sent: t.Sent, Authorization: a.authorization,
	}
	result, err = e.o.call(ctx, t.Attempt, h, &a.call)
	result, err = a.secrets.Result(ctx, result, err)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		err = fmt.Errorf("no end within %s: %w", t.Timeout, err)
		result = model.Result{}
	}
	return result, Classify(err)
}

// Secret implements [secrets.Source].
func (a *attempt) Secret(s datum.Secret) (string, error) {
	if a.e.o.Secrets == nil {
		return "", fmt.Errorf("secret %s: no source of secrets is set", s.Name)
	}
	return a.e.o.Secrets(secrets.UseOf(a.t.Definition.Bundle, a.t.Step, s))
}

// authorization is the field Authorization of the handler's call.
func (a *attempt) authorization(ctx context.Context, s *tree.Service, refused string) (string, error) {
	text, err := a.e.authorization(ctx, s, refused, &a.secrets)
	if err != nil {
		if e, ok := errors.AsType[*outbound.TokenError](err); ok && !e.Until.IsZero() {
			err = model.AfterAtLeast(time.Until(e.Until), err)
		}
		err = model.WithClass(model.ClassCredentials, err)
	}
	return text, err
}

// fill sets the fields of a new handler.
func fill(h Handler, t *node.Call) error {
	if t.Verify {
		return t.Type.Spec.Decode(t.Body, h)
	}
	return t.Step.Fill(t.Body, h)
}

// authorization returns the header Authorization for requests to a service.
func (e *Engine) authorization(ctx context.Context, s *tree.Service, refused string, known *secrets.Set) (string, error) {
	resolve := func(v *expr.Value) (string, error) {
		text, err := known.Resolve(datum.Secret{Name: v.Secret, To: s.ID})
		if err == nil && strings.ContainsFunc(text, unicode.IsControl) {
			err = fmt.Errorf("secret %s has control characters, such as a line break", v.Secret)
		}
		if err != nil {
			err = model.Permanent(fmt.Errorf("auth of service %s: %w", s.ID, err))
		}
		return text, err
	}
	switch a := s.Auth; {
	case a.Kind() == "":
		return "", nil
	case a.OAuth2 != nil:
		secret, err := resolve(a.OAuth2.ClientSecret)
		if err != nil {
			return "", err
		}
		token, err := e.tokens.Token(ctx, s, secret, refused, known.Hide)
		if _, text, ok := strings.Cut(token, " "); ok {
			known.Conceal(text)
		}
		return token, err
	case refused != "":
		return "", nil
	case a.Basic != nil:
		password, err := resolve(a.Basic.Password)
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(a.Basic.Username+":"+password)), err
	default:
		token, err := resolve(a.Bearer)
		return "Bearer " + token, err
	}
}
