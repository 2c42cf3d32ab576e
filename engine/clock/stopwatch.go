package clock

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// A stopwatch is a context with a timeout whose time can be stopped, or without a timeout. A run has one for
// its calls, and each call another one inside it. So it makes no channel unless somebody asks for it, and one
// that is directly inside another is only an entry in its list.
type stopwatch struct {
	context.Context            // the one around it
	outer           *stopwatch // the next stopwatch around it; nil for none
	at              int        // its place in the list of outer, whose lock guards it

	mu      sync.Mutex    // guards the following
	timer   *time.Timer   // nil without a timeout
	end     time.Time     // when the time runs out
	left    time.Duration // while it is stopped
	stopped int           // how often it was stopped

	err    error         // why it has ended; nil before
	done   chan struct{} // closed when it has ended; nil until somebody asks
	after  []*ender      // called when it ends
	inner  []*stopwatch  // directly inside it; they end when it ends
	unlink func() bool   // stops waiting for the end of the context around it; nil directly inside outer

	// Memory for the lists, since most have one entry.
	oneAfter [1]*ender
	oneInner [1]*stopwatch
}

// An ender is called when a stopwatch ends.
type ender struct {
	of *stopwatch
	f  func()
}

type stopwatchKey struct{}

// forever is the timeout of a stopwatch that has none.
const forever time.Duration = math.MaxInt64

func newStopwatch(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	s := &stopwatch{Context: ctx}
	s.after, s.inner = s.oneAfter[:0], s.oneInner[:0]
	s.outer, _ = ctx.Value(stopwatchKey{}).(*stopwatch)
	if err := s.start(timeout); err != nil {
		s.over(err)
	}
	return s, s.cancel
}

// start starts the time, and lets it end with the context around it. The error says that this one has ended.
func (s *stopwatch) start(timeout time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if timeout != forever {
		s.end = time.Now().Add(timeout)
		s.timer = time.AfterFunc(timeout, s.expire)
	}
	// Between two stopwatches there may be contexts that only add values.
	if s.outer != nil && (s.Context == s.outer || s.Context.Done() == s.outer.Done()) {
		return s.outer.add(s)
	}
	s.unlink = context.AfterFunc(s.Context, s.follow)
	return nil
}

// add adds a stopwatch that ends with this one. The error says that this one has ended.
func (s *stopwatch) add(inner *stopwatch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		inner.at = len(s.inner)
		s.inner = append(s.inner, inner)
	}
	return s.err
}

// remove removes a stopwatch that has ended, if it is in the list.
func (s *stopwatch) remove(inner *stopwatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := inner.at; at < len(s.inner) && s.inner[at] == inner {
		last := len(s.inner) - 1
		s.inner[at] = s.inner[last]
		s.inner[at].at = at
		s.inner[last] = nil
		s.inner = s.inner[:last]
	}
}

func (s *stopwatch) expire() { s.over(context.DeadlineExceeded) }
func (s *stopwatch) follow() { s.over(s.Context.Err()) }
func (s *stopwatch) cancel() { s.over(context.Canceled) }

// over ends the context, unless it has ended. The locks of two stopwatches are taken from the inner one to the outer one, so those
// inside end without the lock of this one.
func (s *stopwatch) over(err error) {
	inner, ok := s.finish(err)
	if !ok {
		return
	}
	for _, i := range inner {
		i.over(err)
	}
	if s.unlink != nil {
		s.unlink()
	} else if s.outer != nil {
		s.outer.remove(s)
	}
}

// finish ends the context for those who look at it, and returns the stopwatches inside it. ok is false if it has ended before.
func (s *stopwatch) finish(err error) (inner []*stopwatch, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, false
	}
	s.err = err
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.done != nil {
		close(s.done)
	}
	for _, e := range s.after {
		go e.f()
	}
	inner = s.inner
	s.after, s.inner = nil, nil
	return inner, true
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
	if s.stopped == 1 && s.timer != nil {
		s.timer.Stop()
		s.left = time.Until(s.end)
	}
}

func (s *stopwatch) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped--
	if s.stopped == 0 && s.err == nil && s.timer != nil {
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
	case s.stopped > 0 || s.timer == nil:
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
