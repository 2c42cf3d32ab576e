package tree

import (
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// A Queue makes the pipeline a type of tasks: what is put into its queue waits there by
// priority and tolerance, and each task that is taken becomes an event of the first type
// that the pipeline serves. A task is done when its run has succeeded. The tasks of a
// pipeline without stages are left to workers of other programs.
type Queue struct {
	Span diag.Span `yaml:"-"`

	places

	// Priority is that of tasks that say none: the greater, the earlier.
	Priority int `yaml:"priority" min:"-1000000" max:"1000000"`

	// DelayTolerance is how long a task that says nothing else may wait beyond its time
	// without harm. Among tasks of one priority, that whose tolerance ends first goes
	// first.
	DelayTolerance time.Duration `yaml:"delay-tolerance" max:"87600h"`

	// MaxWait is for how long a task that is ready may wait beyond what it tolerates.
	// Then it gets the priority of the first task in the queue, and goes before all
	// that are not as late; it keeps that priority. Without it, or with 0s, tasks of
	// low priority may wait for ever. It is looked after with a delay of an eighth of
	// it, between a second and a minute.
	MaxWait time.Duration `yaml:"max-wait" min:"0s" max:"87600h"`

	// Timeout bounds one attempt: the run is cancelled then, and the attempt has failed.
	// Without it a run may take as long as it likes.
	Timeout time.Duration `yaml:"timeout" min:"1s" max:"576h"`

	// Concurrency bounds how many tasks are under way at once.
	Concurrency *Concurrency `yaml:"concurrency"`

	// Retry says when a task whose run has failed is tried again, by another run.
	Retry *QueueRetry `yaml:"retry"`

	// Unique names a task among those of the pipeline that have not ended. It may read
	// event: its payload and key. Null is no name.
	Unique *expr.Value `yaml:"unique"`

	// OnDuplicate says what becomes of a task whose name another one has: keep drops
	// it; merge makes one payload of both, and replace puts it in the place of the
	// other one, while nobody has taken that one; rerun lets exactly one more follow
	// when one that is under way has ended, however many come. merge and replace do so
	// too when the other one is under way.
	OnDuplicate string `yaml:"on-duplicate" enum:"keep,merge,replace,rerun" default:"keep"`

	// Merge is the payload that merge makes. It may read first and second, the two
	// payloads.
	Merge *expr.Value `yaml:"merge"`
}

// A Concurrency bounds how many tasks of a type are under way at once.
type Concurrency struct {
	Span diag.Span `yaml:"-"`

	places

	// Node bounds those of one node.
	Node int `yaml:"node" default:"16" min:"1" max:"10000"`

	// Cluster bounds those of all nodes together.
	Cluster int `yaml:"cluster" min:"1" max:"1000000"`

	// Key bounds those of one key.
	Key int `yaml:"key" min:"1" max:"1000000"`
}

// A QueueRetry is a policy of trying tasks again. The delay before the second attempt is
// min-delay. Each further one is factor times as long, and step longer: a factor of 1
// without a step is a constant delay, with a step it grows linearly. delay, an
// expression, may say anything else.
type QueueRetry struct {
	Span diag.Span `yaml:"-"`

	places

	// Attempts is the highest number of attempts, the first one included; 0 is no
	// bound. A task that has failed as often is a dead letter.
	Attempts int `yaml:"attempts" default:"10" min:"0" max:"1000000"`

	// MinDelay is the delay before the second attempt.
	MinDelay time.Duration `yaml:"min-delay" default:"1s" min:"1ms"`

	// MaxDelay bounds the delay. A deviation may go beyond it.
	MaxDelay time.Duration `yaml:"max-delay" default:"1h" min:"1ms"`

	// Factor is what the delay grows by with each attempt.
	Factor float64 `yaml:"factor" default:"2" min:"1" max:"100"`

	// Step is what the delay grows by besides.
	Step time.Duration `yaml:"step" max:"8760h"`

	// Jitter is the share by which a delay may differ either way.
	Jitter float64 `yaml:"jitter" default:"0.1" min:"0" max:"1"`

	// Delay is the delay after an attempt, such as 30s or a number of seconds, in place
	// of the above. It may read attempt, the number of the attempt that has failed.
	Delay *expr.Value `yaml:"delay"`
}

// UniqueOf gives the name of a task among those of the pipeline; empty for none. event
// is as in expressions.
func (q *Queue) UniqueOf(event map[string]any) (string, error) {
	v, err := q.Unique.Eval(datum.Env{"event": event})
	if err != nil || v == nil {
		return "", err
	}
	if text, ok := v.(string); ok {
		return text, nil
	}
	text, err := datum.FormatJSON(v)
	return string(text), err
}

// Merged makes one payload of two.
func (q *Queue) Merged(first, second any) (any, error) {
	return q.Merge.Eval(datum.Env{"first": first, "second": second})
}

// DelayAfter gives the delay after an attempt by the expression; false when there is
// none.
func (r *QueueRetry) DelayAfter(attempt int) (d time.Duration, said bool, err error) {
	if r.Delay.IsNull() {
		return 0, false, nil
	}
	v, err := r.Delay.Eval(datum.Env{"attempt": attempt})
	if err != nil {
		return 0, true, err
	}
	switch v := v.(type) {
	case string:
		d, err = datum.ParseDuration(v)
	case int:
		d = time.Duration(v) * time.Second
	case float64:
		d = time.Duration(v * float64(time.Second))
	default:
		err = datum.Unfit(datum.DurationKind, "")
	}
	return d, true, err
}
