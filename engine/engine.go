package engine

import (
	"context"
	"log/slog"
	"time"

	"procaas/dsl"
)

// Options says what an Engine works with. Store, Types and Bundle are needed;
// [DefaultOptions] holds the rest.
type Options struct {
	Store  Store
	Types  []HandlerType
	Bundle *dsl.Bundle

	Name        string        // of this node, for people
	Log         *slog.Logger  // nothing is logged when nil
	Metrics     *Metrics      // nothing is counted when nil
	MaxInFlight int           // runs that the node works on at once
	Lease       time.Duration // after which other nodes take a silent node's runs over
	Drain       time.Duration // how long a stopping node waits for calls under way
	Secrets     func(name string) (string, error)
}

// DefaultOptions are the values of an Options that sets nothing.
func DefaultOptions() Options {
	return Options{
		Log: slog.New(slog.DiscardHandler), MaxInFlight: 256,
		Lease: 4 * time.Second, Drain: 20 * time.Second,
	}
}

// An Engine takes events in and runs them. All methods are safe for concurrent
// use.
type Engine struct {
	o Options
}

// New makes an engine. It does nothing before Run.
func New(o Options) (*Engine, error) { panic("engine: New is not written yet") }

// Run works until ctx ends, then drains: it takes no more runs, lets calls under
// way end within Options.Drain, gives the rest back and returns.
func (e *Engine) Run(ctx context.Context) error { panic("engine: Engine.Run is not written yet") }

// A Submission is an event on its way in.
type Submission struct {
	Event Event
	Hash  string // of what the sender sent; made from the event when empty
}

// A Submitted is what became of one submission: a receipt, or an error that is
// an [*IntakeError] when the sender is to blame.
type Submitted struct {
	Receipt Receipt
	Err     error
}

// An IntakeError says why an event is refused.
type IntakeError struct {
	Code    string // stable: unknown_event_type, missing_key, event_rejected, …
	Message string
	Field   string // of the event that is wrong, such as payload.order-id; may be empty
}

// Error implements error.
func (e *IntakeError) Error() string { return e.Message }

// Submit accepts events: when it returns, those without an error are durable.
// Each event is accepted or refused for itself. The error is for all of them:
// the store could not be reached, and it is unknown whether they were stored.
func (e *Engine) Submit(ctx context.Context, events []Submission) ([]Submitted, error) {
	panic("engine: Engine.Submit is not written yet")
}

// Bundle gives the definition that new events are served by.
func (e *Engine) Bundle() *dsl.Bundle { panic("engine: Engine.Bundle is not written yet") }

// Load makes b the definition for new events. Runs that have begun keep theirs.
func (e *Engine) Load(ctx context.Context, b *dsl.Bundle) error {
	panic("engine: Engine.Load is not written yet")
}

// Plans gives the plans of all pipelines of the present definition, in order.
func (e *Engine) Plans() []*Plan { panic("engine: Engine.Plans is not written yet") }

// Healthy tells why the node cannot work at present; nil when it can.
func (e *Engine) Healthy(ctx context.Context) error {
	panic("engine: Engine.Healthy is not written yet")
}

// Run, List, Entity, Retry and Cancel are the store's, with the views made.

// RunByID reads one run; [ErrNotFound] when there is none.
func (e *Engine) RunByID(ctx context.Context, id string) (RunView, error) {
	panic("engine: Engine.RunByID is not written yet")
}

// List reads runs, newest first, and the cursor of the next page.
func (e *Engine) List(ctx context.Context, f RunFilter) ([]RunView, string, error) {
	panic("engine: Engine.List is not written yet")
}

// Entity reads a key of a flow; a key of a known flow that no event has reached
// is in its initial state. [ErrNotFound] for an unknown flow.
func (e *Engine) Entity(ctx context.Context, flow, key string) (EntityView, error) {
	panic("engine: Engine.Entity is not written yet")
}

// Retry goes on with a failed run from the handler that failed.
func (e *Engine) Retry(ctx context.Context, id string) (RunView, error) {
	panic("engine: Engine.Retry is not written yet")
}

// Cancel ends a run.
func (e *Engine) Cancel(ctx context.Context, id, reason string) (RunView, error) {
	panic("engine: Engine.Cancel is not written yet")
}

// A HandlerInfo is a handler with what this node has seen of it.
type HandlerInfo struct {
	Path         string   `json:"path"`
	Type         string   `json:"type"`
	Owner        string   `json:"owner"`
	Critical     bool     `json:"critical"`
	Calls        int64    `json:"calls"`         // ended attempts of the last minute
	SuccessRatio *float64 `json:"success_ratio"` // of the last minute; null without calls
	LatencyP50   *float64 `json:"latency_p50_ms"`
	LatencyP99   *float64 `json:"latency_p99_ms"`
	LastError    string   `json:"last_error,omitempty"`
	RateLimit    string   `json:"rate_limit,omitempty"`
	File         string   `json:"file"`
	Line         int      `json:"line"`
}

// Handlers lists the handlers of the present definition, in order.
func (e *Engine) Handlers() []HandlerInfo { panic("engine: Engine.Handlers is not written yet") }

// A ConfigView is a live setting.
type ConfigView struct {
	Name     string     `json:"name"`
	Value    any        `json:"value"`
	Default  any        `json:"default"`  // from the files; null when it is not declared there
	Revision int64      `json:"revision"` // 0: never changed at run time
	Changed  *time.Time `json:"changed"`
	By       string     `json:"by,omitempty"`
	Reason   string     `json:"reason,omitempty"`
}

// Configs lists the live settings, declared ones and set ones, by name.
func (e *Engine) Configs(ctx context.Context) ([]ConfigView, error) {
	panic("engine: Engine.Configs is not written yet")
}

// SetConfig changes a live setting on all nodes. ifRevision as in [Settings].
func (e *Engine) SetConfig(ctx context.Context, name string, value any, ifRevision int64, by Actor) (ConfigView, error) {
	panic("engine: Engine.SetConfig is not written yet")
}
