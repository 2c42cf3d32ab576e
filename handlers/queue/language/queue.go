package language

import (
	"embed"
	"reflect"
	"sync"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// A Queue makes the pipeline a type of tasks. Tasks wait in its queue, ordered by priority and tolerance. When a node
// takes a task, it becomes an event of the first type that the pipeline serves. A task is done when its run has
// succeeded. If the pipeline has no stages, workers of other programs take its tasks.
type Queue struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// Priority is the default priority of tasks. Higher priorities go first.
	Priority int `yaml:"priority" min:"-1000000" max:"1000000"`

	// DelayTolerance is how long a task may wait beyond its time without harm, unless the task sets its own. Within a
	// priority, the task whose tolerance ends first goes first.
	DelayTolerance time.Duration `yaml:"delay-tolerance" max:"87600h"`

	// MaxWait is how long a ready task may wait beyond its tolerance. Then it gets the priority of the first task in
	// the queue, and goes before all tasks that are less late. It keeps that priority. Without max-wait, or with 0s,
	// tasks of low priority may wait for ever. The node acts up to an eighth of max-wait later: at least one second, at
	// most one minute.
	MaxWait time.Duration `yaml:"max-wait" min:"0s" max:"87600h"`

	// Timeout is the longest time of one attempt. After it, the node cancels the run, and the attempt has failed.
	// Without it there is no limit.
	Timeout time.Duration `yaml:"timeout" min:"1s" max:"576h"`

	// Concurrency limits how many tasks are in flight.
	Concurrency *Concurrency `yaml:"concurrency"`

	// Retry says when a task whose run failed gets another run.
	Retry *QueueRetry `yaml:"retry"`

	// Unique names a task among the unfinished tasks of the pipeline. It may read event: its payload and key. null means no name.
	Unique *expr.Value `yaml:"unique"`

	// OnDuplicate decides about a new task if an unfinished one has the same name. keep drops the new task. merge makes
	// one payload of both, and replace puts the new task in the place of the old one. rerun lets exactly one more task
	// follow a task in flight, however many arrive. merge and replace do the same when the old task is in flight.
	OnDuplicate string `yaml:"on-duplicate" enum:"keep,merge,replace,rerun" default:"keep"`

	// Merge computes the payload for merge. It may read first and second, the two payloads.
	Merge *expr.Value `yaml:"merge"`
}

// A Concurrency limits how many tasks of a type are in flight.
type Concurrency struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// Node is the limit for one node.
	Node int `yaml:"node" default:"16" min:"1" max:"10000"`

	// Cluster is the limit for all nodes together.
	Cluster int `yaml:"cluster" min:"1" max:"1000000"`

	// Key is the limit for one key.
	Key int `yaml:"key" min:"1" max:"1000000"`
}

// A QueueRetry is the retry policy of tasks. The delay before the second attempt is min-delay. Each further delay is
// the one before times factor, plus step. With a factor of 1 the delay is constant, or grows linearly with a step. Use
// the expression delay for anything else.
type QueueRetry struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// Attempts is the highest number of attempts, including the first. 0 is no limit. A task that fails this often becomes a dead letter.
	Attempts int `yaml:"attempts" default:"10" min:"0" max:"1000000"`

	// MinDelay is the delay before the second attempt.
	MinDelay time.Duration `yaml:"min-delay" default:"1s" min:"1ms"`

	// MaxDelay is the longest delay. Jitter may exceed it.
	MaxDelay time.Duration `yaml:"max-delay" default:"1h" min:"1ms"`

	// Factor multiplies the delay with each attempt.
	Factor float64 `yaml:"factor" default:"2" min:"1" max:"100"`

	// Step is added to the delay with each attempt.
	Step time.Duration `yaml:"step" max:"8760h"`

	// Jitter is the share by which a delay varies up or down at random.
	Jitter float64 `yaml:"jitter" default:"0.1" min:"0" max:"1"`

	// Delay computes the delay after an attempt, such as 30s or a number of seconds, and replaces the fields above. It
	// may read attempt, the number of the failed attempt.
	Delay *expr.Value `yaml:"delay"`
}

// A queueField is the field of pipelines.
type queueField struct {
	// Queue makes the pipeline a type of tasks with a queue of their own.
	Queue *Queue `yaml:"queue"`
}

//go:embed rules.yaml
var rulesFile embed.FS

func readRules() []rules.Rule { return rules.Read(rulesFile, "rules.yaml") }

//go:embed queue.go
var queueFile embed.FS

// fieldSpec describes the field.
var fieldSpec = sync.OnceValue(func() *spec.Spec { return spec.OfFile(reflect.TypeFor[queueField](), spec.Read(queueFile)) })

// Of returns the queue of a pipeline, or nil.
func Of(p *tree.Pipeline) *Queue { return tree.FieldOf[*Queue](p, "queue") }

// ServesAlone implements [tree.Start]: without stages, workers of other programs take the tasks.
func (q *Queue) ServesAlone() bool { return true }

// Dedups implements [tree.Start].
func (q *Queue) Dedups() bool { return !q.Unique.IsNull() }

// UniqueOf returns the unique name of a task, or "" if there is none. event is the root event of expressions.
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

// Merged merges two payloads.
func (q *Queue) Merged(first, second any) (any, error) {
	return q.Merge.Eval(datum.Env{"first": first, "second": second})
}

// DelayAfter evaluates the delay expression after an attempt. said is false if there is none.
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
