package taskrun

import (
	"encoding/json"
	"fmt"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/queue/language"
)

// A taskSaid says which values the sender of a task has set.
type taskSaid struct{ priority, tolerance bool }

// A TaskOption marks a value that the sender of a task has set, so that the queue section of its
// pipeline does not replace it.
type TaskOption func(*taskSaid)

// SaidPriority keeps the priority of a task, even 0.
func SaidPriority(s *taskSaid) { s.priority = true }

// SaidTolerance keeps the tolerance of a task, even 0.
func SaidTolerance(s *taskSaid) { s.tolerance = true }

// FillTask fills in a task from the queue section of its pipeline: values that the sender has not
// set, the unique key, and the handling of duplicates.
func FillTask(p *tree.Pipeline, t *store.TaskSpec, options ...TaskOption) error {
	q := language.Of(p)
	if q == nil {
		return nil
	}
	var said taskSaid
	for _, o := range options {
		o(&said)
	}
	if t.Priority == 0 && !said.priority {
		t.Priority = q.Priority
	}
	if t.Tolerance == 0 && !said.tolerance {
		t.Tolerance = q.DelayTolerance
	}
	if t.Timeout == 0 {
		t.Timeout = q.Timeout
	}
	if t.Unique == "" && !q.Unique.IsNull() {
		payload, err := taskPayload(t.Payload)
		if err != nil {
			return err
		}
		event := model.EventData(model.Event{Type: taskEventType(p), Source: model.TaskSource(p.ID), Key: t.Key, Payload: payload})
		if t.Unique, err = q.UniqueOf(event); err != nil {
			return fmt.Errorf("%w: unique: %w", store.ErrTask, err)
		}
	}
	if t.Unique != "" && t.OnDuplicate == "" {
		t.OnDuplicate = store.Duplicate(q.OnDuplicate)
	}
	if t.OnDuplicate == store.DuplicateMerge && q.Merge != nil {
		t.Merge = func(first, second json.RawMessage) (json.RawMessage, error) { return mergePayloads(q, first, second) }
	}
	return nil
}

func mergePayloads(q *language.Queue, first, second json.RawMessage) (json.RawMessage, error) {
	a, err := taskPayload(first)
	if err != nil {
		return nil, err
	}
	b, err := taskPayload(second)
	if err != nil {
		return nil, err
	}
	merged, err := q.Merged(a, b)
	if err != nil {
		return nil, err
	}
	return datum.FormatKinds(merged)
}

func taskPayload(data json.RawMessage) (any, error) {
	if len(data) == 0 {
		return nil, nil
	}
	v, err := datum.ParseJSON(data)
	if err != nil {
		return nil, fmt.Errorf("%w: payload: %w", store.ErrTask, err)
	}
	return v, nil
}

// taskEventType returns the type of the events that a pipeline's tasks become.
func taskEventType(p *tree.Pipeline) string {
	if len(p.On) > 0 {
		return p.On[0]
	}
	return p.ID
}

// TaskPolicyOf returns the retry policy of a pipeline's tasks. p may be nil, for other types.
func TaskPolicyOf(p *tree.Pipeline) TaskPolicy {
	if p == nil || language.Of(p) == nil || language.Of(p).Retry == nil {
		return DefaultTaskPolicy()
	}
	r := language.Of(p).Retry
	policy := TaskPolicy{
		Attempts: r.Attempts, MinDelay: r.MinDelay, MaxDelay: r.MaxDelay, Factor: r.Factor, Step: r.Step, Jitter: r.Jitter,
	}
	if !r.Delay.IsNull() {
		policy.Delay = func(attempt int) (time.Duration, error) {
			d, _, err := r.DelayAfter(attempt)
			return d, err
		}
	}
	return policy
}

// TaskWantOf returns how many tasks of a pipeline may be taken at once, in addition to a limit.
func TaskWantOf(p *tree.Pipeline, want store.TaskWant) store.TaskWant {
	if p == nil || language.Of(p) == nil || language.Of(p).Concurrency == nil {
		return want
	}
	want.MaxTaken, want.MaxPerKey = language.Of(p).Concurrency.Cluster, language.Of(p).Concurrency.Key
	return want
}
