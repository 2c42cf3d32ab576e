package engine

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A batcher joins concurrent calls into shared ones: while one is under way,
// items gather, and the next takes them all. It needs no goroutine: of those that
// wait, the first makes the call for the others. Alone, an item does not wait at
// all. Many small calls cost more than a few large ones, so a further lane is used
// only when enough wait to fill it, or when the call under way takes long.
type batcher[T, R any] struct {
	do    func(items []T) []R // the shared call; one result for each item
	most  int                 // items of one shared call
	lanes int                 // shared calls at once

	mu      sync.Mutex // guards the following
	queue   []*ticket[T, R]
	waiting int       // items in the queue
	busy    int       // lanes
	began   time.Time // the last call
}

// longCall is more than a commit usually takes: something may hold it up that does
// not hold up the next one.
const longCall = 20 * time.Millisecond

// A ticket is one caller's place in the queue.
type ticket[T, R any] struct {
	items   []T
	results []R
	leads   bool          // has a lane, and makes the call
	turn    chan struct{} // told once: the results are there, or the ticket leads
}

// call hands in items and waits for their results. When ctx ends first, it is
// unknown what became of them.
func (b *batcher[T, R]) call(ctx context.Context, items []T) ([]R, error) {
	if len(items) <= b.most {
		return b.wait(ctx, items)
	}
	var results []R
	for part := range slices.Chunk(items, b.most) {
		got, err := b.wait(ctx, part)
		if err != nil {
			return nil, err
		}
		results = append(results, got...)
	}
	return results, nil
}

func (b *batcher[T, R]) wait(ctx context.Context, items []T) ([]R, error) {
	t := &ticket[T, R]{items: items, turn: make(chan struct{}, 1)}
	b.mu.Lock()
	b.queue = append(b.queue, t)
	b.waiting += len(items)
	b.promote()
	b.mu.Unlock()

	select {
	case <-t.turn:
	case <-ctx.Done():
		if b.leave(t) {
			return nil, context.Cause(ctx)
		}
		<-t.turn
	}
	if t.leads {
		b.lead(t)
	}
	return t.results, nil
}

// leave takes a ticket out of the queue; false when it leads, and so has a duty
// to the others.
func (b *batcher[T, R]) leave(t *ticket[T, R]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.leads {
		return false
	}
	if i := slices.Index(b.queue, t); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
		b.waiting -= len(t.items)
	}
	return true
}

// promote gives a lane to the ticket that waits longest, if one is free and it is
// worth a call. The caller holds the lock.
func (b *batcher[T, R]) promote() {
	if len(b.queue) == 0 || b.busy == b.lanes || b.busy > 0 && b.waiting < b.most/4 && time.Since(b.began) < longCall {
		return
	}
	t := b.queue[0]
	b.queue = b.queue[1:]
	b.waiting -= len(t.items)
	b.busy++
	b.began = time.Now()
	t.leads = true
	t.turn <- struct{}{}
}

// lead makes one shared call for a ticket and those that wait behind it.
func (b *batcher[T, R]) lead(first *ticket[T, R]) {
	b.mu.Lock()
	batch, size := []*ticket[T, R]{first}, len(first.items)
	for len(b.queue) > 0 && size+len(b.queue[0].items) <= b.most {
		batch, b.queue = append(batch, b.queue[0]), b.queue[1:]
		size += len(batch[len(batch)-1].items)
	}
	b.waiting -= size - len(first.items)
	b.mu.Unlock()

	items := make([]T, 0, size)
	for _, t := range batch {
		items = append(items, t.items...)
	}
	results := b.do(items)
	for _, t := range batch {
		t.results, results = results[:len(t.items):len(t.items)], results[len(t.items):]
		if t != first {
			t.turn <- struct{}{}
		}
	}
	b.mu.Lock()
	b.busy--
	b.promote()
	b.mu.Unlock()
}
