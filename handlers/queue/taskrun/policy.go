package taskrun

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"procaas/engine/store"
)

// A TaskPolicy says when a failed task is retried.
type TaskPolicy struct {
	Attempts int           // limit; 0 for none
	MinDelay time.Duration // before the second attempt
	MaxDelay time.Duration // of all delays, before Jitter; 0 for no limit except [store.MaxTaskAhead]
	Factor   float64       // ratio of a delay to the previous one; 1 keeps it
	Step     time.Duration // added to each further delay
	Jitter   float64       // random deviation, as a share

	// Delay returns the delay after an attempt, from 1, and replaces the above. It may be nil.
	Delay func(attempt int) (time.Duration, error)
}

// DefaultTaskPolicy is the policy of types without one.
func DefaultTaskPolicy() TaskPolicy {
	return TaskPolicy{Attempts: 10, MinDelay: time.Second, MaxDelay: time.Hour, Factor: 2, Jitter: 0.1}
}

// Next reports whether to retry a task after an attempt, from 1, and after what delay. The
// deviation depends only on the task and the attempt. The error is that of Delay, which MinDelay
// then replaces.
func (p TaskPolicy) Next(id int64, attempt int) (time.Duration, bool, error) {
	if p.Attempts > 0 && attempt >= p.Attempts {
		return 0, false, nil
	}
	var delay float64
	if p.Delay != nil {
		d, err := p.Delay(attempt)
		if err != nil {
			return p.MinDelay, true, fmt.Errorf("the delay after attempt %d cannot be told, it is min-delay: %w", attempt, err)
		}
		delay = float64(d)
	} else {
		factor := p.Factor
		if factor <= 0 {
			factor = 1
		}
		delay = float64(p.MinDelay)*math.Pow(factor, float64(attempt-1)) + float64(p.Step)*float64(attempt-1)
		if p.MaxDelay > 0 {
			delay = min(delay, float64(p.MaxDelay))
		}
	}
	if p.Jitter > 0 {
		even := rand.New(rand.NewPCG(uint64(id), uint64(attempt))).Float64()
		delay *= 1 + p.Jitter*(2*even-1)
	}
	return time.Duration(min(max(delay, 0), float64(store.MaxTaskAhead))), true, nil
}
