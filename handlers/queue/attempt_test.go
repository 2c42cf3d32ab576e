package queue

import (
	"context"
	"errors"
	"testing"
	"time"
)

type attemptKey struct{}

func newAttempt(t *testing.T, left time.Duration) *attempt {
	parent := context.WithValue(t.Context(), attemptKey{}, "value")
	return &attempt{parent: parent, deadline: time.Now().Add(left)}
}

// Whoever asks, and whenever, hears the same of an attempt.
func TestContextOfAnAttempt(t *testing.T) {
	t.Parallel()
	ways := map[string]func(*attempt){
		"nobody asks":    func(*attempt) {},
		"Err is asked":   func(a *attempt) { _ = a.Err() },
		"Done is asked":  func(a *attempt) { a.Done() },
		"a child is set": func(a *attempt) { _, stop := context.WithCancel(a); defer stop() },
	}
	for name, ask := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lost := newAttempt(t, time.Hour)
			ask(lost)
			if err := lost.Err(); err != nil || context.Cause(lost) != nil {
				t.Errorf("before the end: want no error, have %v, %v", err, context.Cause(lost))
			}
			lost.cancel(ErrLost)
			child, stop := context.WithCancel(lost)
			defer stop()
			for _, ctx := range []context.Context{lost, child} {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), ErrLost) || !errors.Is(ctx.Err(), context.Canceled) {
					t.Errorf("lost: have %v, caused by %v", ctx.Err(), context.Cause(ctx))
				}
				if ctx.Value(attemptKey{}) != "value" {
					t.Errorf("want the parent's value, have %v", ctx.Value(attemptKey{}))
				}
			}

			late := newAttempt(t, -time.Second)
			ask(late)
			<-late.Done()
			if !errors.Is(late.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(late), context.DeadlineExceeded) {
				t.Errorf("late: have %v, caused by %v", late.Err(), context.Cause(late))
			}

			over := newAttempt(t, time.Hour)
			ask(over)
			over.end()
			over.cancel(ErrLost) // too late
			<-over.Done()
			if !errors.Is(over.Err(), context.Canceled) || !errors.Is(context.Cause(over), context.Canceled) {
				t.Errorf("over: have %v, caused by %v", over.Err(), context.Cause(over))
			}
		})
	}
}

func TestAttemptEndsWithItsParent(t *testing.T) {
	t.Parallel()
	parent, stop := context.WithCancelCause(t.Context())
	a := &attempt{parent: parent, deadline: time.Now().Add(time.Hour)}
	stop(errStops)
	if !errors.Is(a.Err(), context.Canceled) || !errors.Is(context.Cause(a), errStops) {
		t.Errorf("have %v, caused by %v", a.Err(), context.Cause(a))
	}
	if at, ok := a.Deadline(); !ok || time.Until(at) > time.Hour {
		t.Errorf("have deadline %v, %v", at, ok)
	}
}
