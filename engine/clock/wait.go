package clock

import (
	"context"
	"errors"
	"time"
)

// ErrTooLong reports that there was no answer within the caller's time. Nothing was changed.
var ErrTooLong = errors.New("it takes longer than there is time for")

// The time of handlers' calls. In a [Virtual] engine it passes only when a call says so with
// [Sleep], and deadlines are reached only then.

// Sleep waits during a call. The error is that of ctx if it ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	if v, ok := ctx.Value(paceKey{}).(*pacedContext); ok {
		return v.sleep(max(d, 0))
	}
	if !Pause(ctx, d) {
		return ctx.Err()
	}
	return nil
}

// WithTimeout is [context.WithTimeout] for calls of handlers. [Suspend] stops its time.
func WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	v, ok := ctx.Value(paceKey{}).(*pacedContext)
	if !ok {
		return newStopwatch(ctx, d)
	}
	end := v.pace.Passed + max(d, 0)
	if v.limited && v.end < end {
		end = v.end
	}
	inner, cancel := context.WithCancel(ctx)
	return &pacedContext{Context: inner, pace: v.pace, limited: true, end: end}, cancel
}

// WithCancel is [context.WithCancel] for the calls of a run. Timeouts of [WithTimeout] cost less inside it.
func WithCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	return newStopwatch(ctx, forever)
}

// Passed returns how much time has passed in a call in virtual time, otherwise 0.
func Passed(ctx context.Context) time.Duration {
	if v, ok := ctx.Value(paceKey{}).(*pacedContext); ok {
		return v.pace.Passed
	}
	return 0
}

// A Pace is the time of one call.
type Pace struct {
	Began  time.Time
	Passed time.Duration
}

// A pacedContext is the context of a call in virtual time.
type pacedContext struct {
	context.Context

	pace    *Pace
	limited bool
	end     time.Duration // since the start of the call, if limited
}

type paceKey struct{}

// Paced returns a context in which the time of the call is that of p.
func Paced(ctx context.Context, p *Pace) context.Context { return &pacedContext{Context: ctx, pace: p} }

func (c *pacedContext) sleep(d time.Duration) error {
	if err := c.Err(); err != nil {
		return err
	}
	c.pace.Passed += d
	if c.limited && c.pace.Passed >= c.end {
		c.pace.Passed = c.end
	}
	return c.Err()
}

// Deadline implements [context.Context].
func (c *pacedContext) Deadline() (time.Time, bool) {
	return c.pace.Began.Add(c.end), c.limited
}

// Err implements [context.Context].
func (c *pacedContext) Err() error {
	if c.limited && c.pace.Passed >= c.end {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

// AfterFunc is [context.AfterFunc] for the context around it, so that contexts below need no goroutine.
func (c *pacedContext) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.Context, f) }

// Value implements [context.Context].
func (c *pacedContext) Value(key any) any {
	if key == (paceKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// StoreTimeout bounds one call of the store. After it, the outcome is unknown.
const StoreTimeout = 10 * time.Second

// MaxBackoff is the longest pause between tries of a call of the store.
const MaxBackoff = 500 * time.Millisecond

// Pause waits. It returns false if ctx ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// A Backoff paces tries. The first pause is First, and each other one is twice as long as the one before, up to Most.
type Backoff struct {
	First, Most time.Duration

	next time.Duration // zero before the first pause
}

// Pause waits before the next try. It returns false if ctx ended first.
func (b *Backoff) Pause(ctx context.Context) bool {
	d := max(b.next, b.First)
	b.next = min(2*d, b.Most)
	return Pause(ctx, d)
}

// Reset lets the next pause be the first.
func (b *Backoff) Reset() { b.next = 0 }
