// Package route finds the worker of a key. It follows the assignment of a cluster in memory, and
// passes requests on to the workers, so that callers do not notice when a partition moves.
package route

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"procaas/engine"
	"procaas/engine/clock"
	"procaas/handlers/balancer/clusters"
)

// A Source provides the assignments of one cluster.
type Source interface {
	// Await returns an assignment newer than a version, as soon as there is one. It may return an
	// error at any time, and is called again.
	Await(ctx context.Context, after int64) (clusters.Assignment, error)
}

// A SourceFunc is a function that is a [Source].
type SourceFunc func(ctx context.Context, after int64) (clusters.Assignment, error)

// Await implements [Source].
func (f SourceFunc) Await(ctx context.Context, after int64) (clusters.Assignment, error) {
	return f(ctx, after)
}

// A Follower keeps the newest assignment of a cluster in memory. It never goes back to an older
// one, and keeps the last one while its source is unreachable.
type Follower struct {
	source Source
	log    *slog.Logger

	mu      sync.Mutex // guards what follows
	current *clusters.Assignment
	newer   chan struct{} // closed when current changes
}

// These are the pauses before a failed source is asked again.
const (
	leastPause = 50 * time.Millisecond
	mostPause  = 5 * time.Second
)

// NewFollower makes a follower, which knows nothing before [Follower.Run]. A nil log logs nothing.
func NewFollower(s Source, log *slog.Logger) *Follower {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Follower{source: s, log: log, newer: make(chan struct{})}
}

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	pause := leastPause
	for ctx.Err() == nil {
		a, err := f.source.Await(ctx, f.version())
		if err == nil && f.take(&a) {
			pause = leastPause
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			f.log.Warn("the assignment cannot be followed; the last one holds", "version", f.version(), "error", err)
		}
		// Spread, so that not all followers ask a recovered server at once.
		clock.Pause(ctx, pause/2+rand.N(pause/2))
		pause = min(2*pause, mostPause)
	}
}

// take keeps an assignment if it is newer than the last.
func (f *Follower) take(a *clusters.Assignment) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil && a.Version <= f.current.Version {
		return false
	}
	f.current = a
	close(f.newer)
	f.newer = make(chan struct{})
	return true
}

// version returns that of the newest assignment, or 0.
func (f *Follower) version() int64 {
	if a := f.Current(); a != nil {
		return a.Version
	}
	return 0
}

// Current returns the newest known assignment, or nil. Do not change it.
func (f *Follower) Current() *clusters.Assignment {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

// Newer waits for an assignment newer than a version. If ctx ends first, it returns the newest one
// and the error of ctx.
func (f *Follower) Newer(ctx context.Context, after int64) (*clusters.Assignment, error) {
	for {
		f.mu.Lock()
		current, newer := f.current, f.newer
		f.mu.Unlock()
		if current != nil && current.Version > after {
			return current, nil
		}
		select {
		case <-newer:
		case <-ctx.Done():
			return current, ctx.Err()
		}
	}
}

// A Route says where a key leads.
type Route struct {
	Partition int                     // of the key
	Version   int64                   // of the assignment
	Worker    clusters.AssignedWorker // the worker of the partition
}

// Route returns the worker of a key. The error is [ErrUnknown], or [ErrNobody] together with the
// partition and the version.
func (f *Follower) Route(key string) (Route, error) {
	a := f.Current()
	if a == nil || len(a.Owners) == 0 {
		return Route{}, ErrUnknown
	}
	r := Route{Partition: engine.PartitionOf(key, len(a.Owners)), Version: a.Version}
	w, ok := a.Owner(r.Partition)
	if !ok {
		return r, fmt.Errorf("partition %d: %w", r.Partition, ErrNobody)
	}
	r.Worker = w
	return r, nil
}
