package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/checkpoint"
	"procaas/engine/enginetest"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A rig is a store with engines on it, for tests in a synctest bubble.
type rig struct {
	t     *testing.T
	store store.Store
	types []engine.HandlerType

	language *tree.Language // with sections of add-ons; nil for the core alone

	calls enginetest.Recorder
	log   logBuffer

	notices noticeBoard

	// do says what each handler does, by the last part of its path; those that
	// are not named succeed at once.
	mu sync.Mutex
	do map[string]enginetest.Do
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, store: enginetest.NewMemory().Ports(), do: map[string]enginetest.Do{}}
	r.types = []engine.HandlerType{enginetest.Scripted("step", r.calls.Record(r.handle))}
	return r
}

// bubble runs a test of engines in virtual time, beside other tests.
func bubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t)) })
}

// pass lets fake time pass, and all happen that is due until then. After [time.Sleep] alone, what is due at the same moment has
// happened or not, by chance.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) handle(ctx context.Context, c *engine.Call, value any) (model.Result, error) {
	r.mu.Lock()
	do := r.do[c.Path[strings.LastIndex(c.Path, "/")+1:]]
	r.mu.Unlock()
	if do == nil {
		return model.Result{Response: value}, nil
	}
	return do(ctx, c, value)
}

// on sets what a handler does.
func (r *rig) on(handler string, do enginetest.Do) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.do[handler] = do
}

func (r *rig) bundle(yaml string) *tree.Bundle {
	r.t.Helper()
	return enginetest.LoadIn(r.t, r.language, yaml, r.types...)
}

// engine makes an engine that does not run yet.
func (r *rig) engine(store store.Store, yaml string, change ...func(*engine.Options)) *engine.Engine {
	r.t.Helper()
	o := engine.Options{
		Store: store, Types: r.types, Bundle: r.bundle(yaml), Name: "test", Notify: r.notices.add,
		Log: slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&o)
	}
	e, err := engine.New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// run starts an engine; stop drains it and returns the error of Run.
func (r *rig) run(e *engine.Engine) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	r.t.Cleanup(func() { stop() })
	return stop
}

// start makes an engine and runs it.
func (r *rig) start(yaml string, change ...func(*engine.Options)) (e *engine.Engine, stop func() error) {
	r.t.Helper()
	return r.startOn(r.store, yaml, change...)
}

func (r *rig) startOn(store store.Store, yaml string, change ...func(*engine.Options)) (e *engine.Engine, stop func() error) {
	r.t.Helper()
	e = r.engine(store, yaml, change...)
	stop = r.run(e)
	synctest.Wait()
	return e, stop
}

// submit hands in one event and returns its run.
func (r *rig) submit(e *engine.Engine, ev model.Event) string {
	r.t.Helper()
	out, err := e.Submit(context.Background(), []intake.Submission{{Event: ev}})
	if err != nil {
		r.t.Fatal(err)
	}
	if out[0].Err != nil {
		r.t.Fatal(out[0].Err)
	}
	return out[0].Receipt.Run
}

// refuse hands in one event that must be refused.
func (r *rig) refuse(e *engine.Engine, ev model.Event) *intake.Error {
	r.t.Helper()
	out, err := e.Submit(context.Background(), []intake.Submission{{Event: ev}})
	if err != nil {
		r.t.Fatal(err)
	}
	refused := &intake.Error{}
	ok := errors.As(out[0].Err, &refused)
	if !ok {
		r.t.Fatalf("want an intake.Error, have %v and receipt %+v", out[0].Err, out[0].Receipt)
	}
	return refused
}

// view reads a run.
func (r *rig) view(e *engine.Engine, run string) checkpoint.RunView {
	r.t.Helper()
	v, err := e.RunByID(context.Background(), run)
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

// settle lets fake time pass until a run has a status.
func (r *rig) settle(e *engine.Engine, run string, want model.Status) checkpoint.RunView {
	r.t.Helper()
	synctest.Wait()
	v := r.view(e, run)
	for range 2000 {
		if v.Status == want {
			return v
		}
		pass(5 * time.Millisecond)
		v = r.view(e, run)
	}
	r.t.Fatalf("run does not become %s; it is %s: %s %s\n%s", want, v.Status, v.Error, v.Reason, r.log.String())
	return v
}

// paths lists the handlers that were called, in order.
func (r *rig) paths() []string {
	var out []string
	for _, c := range r.calls.Calls() {
		out = append(out, c.Path)
	}
	return out
}

// want compares the handlers that were called.
func (r *rig) want(paths ...string) {
	r.t.Helper()
	if have := r.paths(); !slices.Equal(have, paths) {
		r.t.Errorf("want calls of %v, have %v", paths, have)
	}
}

// A gate holds calls until the test opens it.
type gate chan struct{}

func (g gate) do(ctx context.Context, _ *engine.Call, value any) (model.Result, error) {
	select {
	case <-g:
		return model.Result{Response: value}, nil
	case <-ctx.Done():
		return model.Result{}, ctx.Err()
	}
}

// logBuffer keeps what is logged.
type logBuffer struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// event makes an event of a type for a key.
func event(eventType, key string) model.Event {
	return model.Event{Type: eventType, Key: key, Payload: map[string]any{"id": key}}
}

// three is a pipeline of three stages with one handler each.
const three = `
flows:
  - id: order
    key: !$ event.payload.id
    shared-state: {seen: 0}
pipelines:
  - id: work
    flow: order
    stages:
      - {id: a, handlers: [{id: one, step: {}}]}
      - {id: b, handlers: [{id: two, step: {}, result: {seen: !$ shared-state.seen + 1}}]}
      - {id: c, handlers: [{id: three, step: {}}]}
`

// parallel is a pipeline of one stage with n handlers.
func parallel(n int) string {
	var b strings.Builder
	b.WriteString("pipelines:\n  - id: work\n    stages:\n      - id: a\n        handlers:\n")
	for i := range n {
		fmt.Fprintf(&b, "          - {id: h%d, step: {}}\n", i)
	}
	return b.String()
}
