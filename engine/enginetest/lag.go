package enginetest

import (
	"sync/atomic"
	"testing"
	"time"
)

// A Lag measures how late a busy machine is, so that tests of times can distinguish that from
// delays of our own.
type Lag struct{ worst atomic.Int64 }

// MeasureLag measures until the end of the test.
func MeasureLag(t testing.TB) *Lag {
	const tick = 10 * time.Millisecond
	l := &Lag{}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			began := time.Now()
			timer := time.NewTimer(tick)
			select {
			case <-stop:
				timer.Stop()
				return
			case <-timer.C:
			}
			l.worst.Store(max(l.worst.Load(), int64(time.Since(began)-tick)))
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return l
}

// Allow returns a bound that this machine can meet. On an idle one it is hardly more than promised.
// On a busy one it adds a chain of twenty steps, each as late as the worst measured.
func (l *Lag) Allow(promised time.Duration) time.Duration {
	return promised + 20*time.Duration(l.worst.Load())
}
