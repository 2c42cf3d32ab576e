package tree

import (
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
)

// The structs of this file bound in which runs, how often and for how long a handler is called.

// A Rollout lets a handler run in a share of the runs: always the same share,
// told by the hash of a value.
type Rollout struct {
	Span diag.Span `yaml:"-"`

	places

	// Percent is the share, from 0 to 100. It can be changed at run time.
	Percent float64 `yaml:"percent" required:"true" min:"0" max:"100"`

	// By is the value that decides: runs with the same value are all in the share
	// or all out of it. Raising the percentage keeps those in that are. The key of
	// the run when it is left out.
	By *expr.Value `yaml:"by"`
}

// A RateLimit bounds how often a handler is called on all nodes together. Each
// node that is alive has an equal part of it.
type RateLimit struct {
	Span diag.Span `yaml:"-"`

	places

	// Rate is the number of calls per unit of time, such as 100/s or 5/m.
	Rate datum.Rate `yaml:"rate" required:"true"`

	// Burst is how many calls may come at once after a pause; the calls of one
	// second, and at least 1, when it is left out.
	Burst int `yaml:"burst" min:"1" max:"1000000"`

	// Over says what becomes of a call over the limit: wait or skip. A
	// critical handler always waits.
	Over string `yaml:"over" enum:"wait,skip" default:"wait"`
}

// A Fallback takes a handler out of the flow while too few of its calls
// succeed.
type Fallback struct {
	Span diag.Span `yaml:"-"`

	places

	// MinSuccessRatio is the share of successful calls below which the handler
	// is taken out, as soon as it is nearly certain.
	MinSuccessRatio float64 `yaml:"min-success-ratio" default:"0.5" min:"0" max:"1"`

	// Window is the time over which calls are counted; at least five minutes
	// count when it holds fewer than min-calls.
	Window time.Duration `yaml:"window" default:"30s" min:"1s" max:"1h"`

	// MinCalls is the number of calls below which nothing is decided.
	MinCalls int `yaml:"min-calls" default:"10" min:"1" max:"1000000"`

	// Duration is how long the handler stays out the first time, before single
	// calls try whether it works again.
	Duration time.Duration `yaml:"duration" default:"10s" min:"1s"`

	// MaxDuration bounds the time, which doubles when the handler fails again
	// within ten minutes.
	MaxDuration time.Duration `yaml:"max-duration" default:"5m" min:"1s"`

	// On lists the classes of errors that count as failures, as in retry; any
	// counts all. Left out, all count but those that repeating cannot mend, such as
	// a 404: they say nothing about the handler.
	On spec.Names `yaml:"on" pattern:"class"`

	// Result stands in for the handler's result while it is out or has failed:
	// names of the shared state and their values.
	Result *expr.Value `yaml:"result" kind:"map"`
}
