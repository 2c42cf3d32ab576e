package tree

import (
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
)

// The structs of this file limit in which runs, how often and for how long a handler is called.

// A Rollout runs a handler in a share of the runs. The hash of a value chooses the runs, so the share stays the same.
type Rollout struct {
	Span diag.Span `yaml:"-"`

	places

	// Percent is the share in percent. Operators can change it at run time.
	Percent float64 `yaml:"percent" required:"true" min:"0" max:"100"`

	// By is the value to hash. Its default is the key of the run. Runs with the same value are either all in the share
	// or all out of it. Runs that are in stay in when you raise the percentage.
	By *expr.Value `yaml:"by"`
}

// A RateLimit limits how often a handler is called, on all nodes together. Without per, each node that is alive
// gets an equal part of it, and the parts that other nodes do not use. With per, nodes ask the store before each call.
type RateLimit struct {
	Span diag.Span `yaml:"-"`

	places

	// Rate is the number of calls per unit of time, such as 100/s or 5/m.
	Rate datum.Rate `yaml:"rate" required:"true"`

	// Per gives each value a limit of its own, such as each customer. The value is text, a number or a boolean. It is
	// evaluated before the first attempt. A digest of it is in the store while its calls use the limit.
	Per *expr.Value `yaml:"per"`

	// Burst is how many calls may start at once after a pause. Its default is the number of calls in one second, but at least 1.
	Burst int `yaml:"burst" min:"1" max:"1000000"`

	// Over says what a call over the limit does: wait or skip. A critical handler always waits.
	Over string `yaml:"over" enum:"wait,skip" default:"wait"`
}

// Text describes the limit for people. It names no value of per.
func (r *RateLimit) Text() string {
	if e := r.Per.Expr(); e != nil {
		return r.Rate.Text() + " for each " + strings.Join(strings.Fields(e.Source), " ")
	}
	return r.Rate.Text()
}

// A Fallback takes a handler out of the flow while too few of its calls succeed.
type Fallback struct {
	Span diag.Span `yaml:"-"`

	places

	// MinSuccessRatio is the lowest share of successful calls. The engine takes the handler out when the share is lower
	// with high certainty.
	MinSuccessRatio float64 `yaml:"min-success-ratio" default:"0.5" min:"0" max:"1"`

	// Window is the time over which the engine counts calls. If it has fewer than min-calls, the engine counts at least
	// the last five minutes.
	Window time.Duration `yaml:"window" default:"30s" min:"1s" max:"1h"`

	// MinCalls is the lowest number of calls for a decision.
	MinCalls int `yaml:"min-calls" default:"10" min:"1" max:"1000000"`

	// SlowerThan counts calls that take longer as failures, so that a slow handler leaves the flow as a failing one does. The
	// run still uses their results.
	SlowerThan time.Duration `yaml:"slower-than" min:"1ms"`

	// Duration is how long the handler stays out the first time. After it, single calls try whether it works again.
	Duration time.Duration `yaml:"duration" default:"10s" min:"1s"`

	// MaxDuration is the longest time out. The time doubles each time that the handler fails again within ten minutes.
	MaxDuration time.Duration `yaml:"max-duration" default:"5m" min:"1s"`

	// On lists the classes of errors that count as failures, as in retry; any counts all. By default timeouts,
	// failed connections, 5xx, 429 and responses that do not fit their schema count. A 404 does not: it says nothing about the service.
	On spec.Names `yaml:"on" pattern:"class"`

	// Result replaces the handler's result while it is out of the flow or has failed: names of the shared state and their values.
	Result *expr.Value `yaml:"result" kind:"map"`
}
