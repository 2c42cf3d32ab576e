package queue

import (
	"context"
	"sync"
	"time"
)

// An attempt is the context of one attempt. Most attempts are short and never use their context, so
// channels are only made on the first use.
type attempt struct {
	parent   context.Context
	deadline time.Time

	mu    sync.Mutex      // guards the following
	real  context.Context // nil until it is needed
	stop  context.CancelCauseFunc
	clear context.CancelFunc
	ended bool
}

// needed returns the real context. The caller holds the lock.
func (a *attempt) needed() context.Context {
	if a.real == nil {
		stoppable, stop := context.WithCancelCause(a.parent)
		a.real, a.clear = context.WithDeadline(stoppable, a.deadline)
		a.stop = stop
		if a.ended {
			stop(nil)
		}
	}
	return a.real
}

// cancel cancels the attempt with a cause.
func (a *attempt) cancel(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ended {
		a.needed()
		a.stop(cause)
	}
}

// end ends the context because the attempt has ended.
func (a *attempt) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	if a.real != nil {
		a.clear()
		a.stop(nil)
	}
}

// Deadline implements [context.Context].
func (a *attempt) Deadline() (time.Time, bool) { return a.deadline, true }

// Done implements [context.Context].
func (a *attempt) Done() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.needed().Done()
}

// Err implements [context.Context].
func (a *attempt) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.real == nil && !a.ended && a.parent.Err() == nil && time.Now().Before(a.deadline) {
		return nil
	}
	return a.needed().Err()
}

// Value implements [context.Context]. It asks the real context if there is one. Package context
// uses that to find the cause after Err or Done have made it.
func (a *attempt) Value(key any) any {
	a.mu.Lock()
	in := a.real
	a.mu.Unlock()
	if in == nil {
		in = a.parent
	}
	return in.Value(key)
}
