package clock

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A stopwatch is a context with a timeout whose time can be stopped.
type stopwatch struct {
	context.Context            // the one around it
	outer           *stopwatch // nil for none

	work   context.Context // ends with the time, or with the one around it
	cancel context.CancelCauseFunc

	mu      sync.Mutex // guards the following
	timer   *time.Timer
	end     time.Time     // when the time runs out
	left    time.Duration // while it is stopped
	stopped int           // how often it was stopped
}

type stopwatchKey struct{}

func newStopwatch(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	s := &stopwatch{Context: ctx, end: time.Now().Add(d)}
	s.outer, _ = ctx.Value(stopwatchKey{}).(*stopwatch)
	s.work, s.cancel = context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(d, s.expire)
	return s, func() {
		s.mu.Lock()
		s.timer.Stop()
		s.mu.Unlock()
		s.cancel(context.Canceled)
	}
}

func (s *stopwatch) expire() { s.cancel(context.DeadlineExceeded) }

// Suspend stops the time of all timeouts of a call, until the returned function is called. A call that
// waits for its own node must not fail as if its service were slow.
func Suspend(ctx context.Context) (resume func()) {
	innermost, _ := ctx.Value(stopwatchKey{}).(*stopwatch)
	for s := innermost; s != nil; s = s.outer {
		s.stop()
	}
	return func() {
		for s := innermost; s != nil; s = s.outer {
			s.resume()
		}
	}
}

func (s *stopwatch) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped++
	if s.stopped == 1 {
		s.timer.Stop()
		s.left = time.Until(s.end)
	}
}

func (s *stopwatch) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped--
	if s.stopped == 0 && s.work.Err() == nil {
		s.end = time.Now().Add(s.left)
		s.timer.Reset(s.left)
	}
}

// Deadline implements [context.Context]. There is none while the time is stopped.
func (s *stopwatch) Deadline() (time.Time, bool) {
	outer, limited := s.Context.Deadline()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped > 0:
		return outer, limited
	case limited && outer.Before(s.end):
		return outer, true
	}
	return s.end, true
}

// Done implements [context.Context].
func (s *stopwatch) Done() <-chan struct{} { return s.work.Done() }

// Err implements [context.Context].
func (s *stopwatch) Err() error {
	err := s.work.Err()
	if err != nil && s.Context.Err() == nil && errors.Is(context.Cause(s.work), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	if err != nil && s.Context.Err() != nil {
		return s.Context.Err()
	}
	return err
}

// Value implements [context.Context].
func (s *stopwatch) Value(key any) any {
	if key == (stopwatchKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// AfterFunc lets contexts below this one end with it, as [context.AfterFunc] has it.
func (s *stopwatch) AfterFunc(f func()) func() bool { return context.AfterFunc(s.work, f) }
