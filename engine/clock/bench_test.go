package clock_test

import (
	"context"
	"testing"
	"time"

	"procaas/engine/clock"
)

// BenchmarkCalls is the timeouts of a run with three calls, each of which waits for a connection.
func BenchmarkCalls(b *testing.B) {
	node, end := context.WithCancel(b.Context())
	defer end()
	b.ReportAllocs()
	for b.Loop() {
		calls, over := clock.WithCancel(node)
		for range 3 {
			ctx, cancel := clock.WithTimeout(calls, 5*time.Second)
			context.AfterFunc(ctx, end)()
			cancel()
		}
		over()
	}
}
