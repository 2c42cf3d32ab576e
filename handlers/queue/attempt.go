package queue

import (
	"context"
	"sync"
	"time"
)

// An attempt is the context of one attempt. Most attempts are short and ask nothing of
// it, so it makes what others can wait for when somebody asks for it first.
type attempt struct {
	parent   context.Context
	deadline time.Time

	mu    sync.Mutex      // guards the following
	real  context.Context // nil as long as nobody needs one
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

// cancel ends the attempt because of something that happened elsewhere.
func (a *attempt) cancel(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ended {
		a.needed()
		a.stop(cause)
	}
}

// end ends the context as its attempt has ended.
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

// Value implements [context.Context]. The real context answers when there is one:
// package context asks it that way for the cause, once Err or Done have made it.
func (a *attempt) Value(key any) any {
	a.mu.Lock()
	in := a.real
	a.mu.Unlock()
	if in == nil {
		in = a.parent
	}
	return in.Value(key)
}
