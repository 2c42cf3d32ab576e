package enginetest

import (
	"context"
	"embed"
	"errors"
	"slices"
	"sync"

	"procaas/dsl/spec"
	"procaas/engine"
	"procaas/engine/model"
)

//go:embed handlers.go
var handlersFiles embed.FS

// A Script is a handler type that does what a test wants.
type Script struct {
	// Value is passed to the test, with its expressions evaluated.
	Value any `yaml:"value"`

	// Service is the id of a declared service that the handler pretends to call.
	Service string `yaml:"service"`

	do Do
}

// A Do is the implementation of a scripted handler.
type Do func(ctx context.Context, c *engine.Call, value any) (model.Result, error)

// Scripted makes a handler type from a function.
func Scripted(name string, do Do) engine.HandlerType {
	t := engine.Type[Script](name, spec.Read(handlersFiles))
	t.New = func() engine.Handler { return &Script{do: do} }
	return t
}

// Handle implements [engine.Handler].
func (s *Script) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	if s.do == nil {
		return model.Result{}, model.Permanent(errors.New("the script has no function; make it by Scripted"))
	}
	return s.do(ctx, c, s.Value)
}

// A Recorder records the calls of scripted handlers. The zero value is ready to use.
type Recorder struct {
	mu    sync.Mutex // guards calls
	calls []engine.Call
}

// Record wraps a function so that its calls are recorded before they are made.
func (r *Recorder) Record(do Do) Do {
	return func(ctx context.Context, c *engine.Call, value any) (model.Result, error) {
		r.mu.Lock()
		r.calls = append(r.calls, *c)
		r.mu.Unlock()
		return do(ctx, c, value)
	}
}

// Calls returns the calls so far, in the order of their starts.
func (r *Recorder) Calls() []engine.Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Of returns the calls of one path.
func (r *Recorder) Of(path string) []engine.Call {
	return slices.DeleteFunc(r.Calls(), func(c engine.Call) bool { return c.Path != path })
}
