package clock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A stopwatch is a context with a timeout whose time can be stopped. Each call makes one, so it needs
// no other context below it, and no channel unless somebody asks for it.
type stopwatch struct {
	context.Context            // the one around it
	outer           *stopwatch // nil for none

	mu      sync.Mutex // guards the following
	timer   *time.Timer
	end     time.Time     // when the time runs out
	left    time.Duration // while it is stopped
	stopped int           // how often it was stopped

	err    error         // why it has ended; nil before
	done   chan struct{} // closed when it has ended; nil until somebody asks
	after  []*ender      // called when it ends
	one    [1]*ender     // memory for after, since most have one
	unlink func() bool   // stops waiting for the end of the context around it
}

// An ender is called when a stopwatch ends.
type ender struct {
	of *stopwatch
	f  func()
}

type stopwatchKey struct{}

func newStopwatch(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	s := &stopwatch{Context: ctx, end: time.Now().Add(d)}
	s.after = s.one[:0]
	s.outer, _ = ctx.Value(stopwatchKey{}).(*stopwatch)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlink = context.AfterFunc(ctx, s.follow)
	s.timer = time.AfterFunc(d, s.expire)
	return s, s.cancel
}

func (s *stopwatch) expire() { s.over(context.DeadlineExceeded) }
func (s *stopwatch) follow() { s.over(s.Context.Err()) }
func (s *stopwatch) cancel() { s.over(context.Canceled) }

// over ends the context, unless it has ended.
func (s *stopwatch) over(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = err
	s.timer.Stop()
	s.unlink()
	if s.done != nil {
		close(s.done)
	}
	for _, e := range s.after {
		go e.f()
	}
	s.after = nil
}

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
	if s.stopped == 0 && s.err == nil {
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
func (s *stopwatch) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done == nil {
		s.done = make(chan struct{})
		if s.err != nil {
			close(s.done)
		}
	}
	return s.done
}

// Err implements [context.Context]. It knows of the end of the context around it before follow does.
func (s *stopwatch) Err() error {
	if err := s.Context.Err(); err != nil {
		s.over(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Value implements [context.Context].
func (s *stopwatch) Value(key any) any {
	if key == (stopwatchKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// AfterFunc is [context.AfterFunc] for this context, which also contexts below it use.
func (s *stopwatch) AfterFunc(f func()) (stop func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &ender{s, f}
	if s.err != nil {
		go f()
	} else {
		s.after = append(s.after, e)
	}
	return e.stop
}

// stop reports whether f is not called any more.
func (e *ender) stop() bool {
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	at := slices.Index(e.of.after, e)
	if at < 0 {
		return false
	}
	e.of.after = slices.Delete(e.of.after, at, at+1)
	return true
}
