package writes

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A Batcher joins concurrent calls into shared ones: while one is in flight,
// items gather, and the next takes them all. It needs no goroutine: of those that
// wait, the first makes the call for the others. Alone, an item does not wait at
// all. Many small calls cost more than a few large ones, so a further lane is used
// only when enough wait to fill it, or when the call under way takes long.
//
// Items whose callers have gone before their turn are dropped.
type Batcher[T, R any] struct {
	Do      func(items []T) []R // the shared call; one result for each item
	Dropped func(items int)     // is told of items that are dropped; may be nil
	Most    int                 // items of one shared call
	Lanes   int                 // shared calls at once

	mu      sync.Mutex // guards the following
	queue   []*ticket[T, R]
	waiting int           // items in the queue
	begun   []time.Time   // the calls in flight, the oldest first
	usual   time.Duration // what a call takes
}

// MaxBatch is how many changes or events are written in one transaction.
const MaxBatch = 256

// longCall is more than a commit usually takes: something may hold it up that does
// not hold up the next one.
const longCall = 20 * time.Millisecond

// A ticket is one caller's place in the queue.
type ticket[T, R any] struct {
	ctx     context.Context // of the caller
	items   []T
	err     error // why there are no results
	results []R
	leads   bool          // has a lane, and makes the call
	began   time.Time     // when it was given the lane
	turn    chan struct{} // told once: the results are there, or the ticket leads
}

// Call hands in items and waits for their results. When ctx ends first, it is
// unknown what became of them.
func (b *Batcher[T, R]) Call(ctx context.Context, items []T) ([]R, error) {
	if len(items) <= b.Most {
		return b.wait(ctx, items)
	}
	var results []R
	for part := range slices.Chunk(items, b.Most) {
		got, err := b.wait(ctx, part)
		if err != nil {
			return nil, err
		}
		results = append(results, got...)
	}
	return results, nil
}

func (b *Batcher[T, R]) wait(ctx context.Context, items []T) ([]R, error) {
	t := &ticket[T, R]{ctx: ctx, items: items, turn: make(chan struct{}, 1)}
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
	return t.results, t.err
}

// leave takes a ticket out of the queue; false when it leads, and so has a duty
// to the others.
func (b *Batcher[T, R]) leave(t *ticket[T, R]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.leads {
		return false
	}
	if i := slices.Index(b.queue, t); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
		b.waiting -= len(t.items)
		b.drop(t)
	}
	return true
}

// promote gives a lane to the ticket that waits longest, if one is free and it is
// worth a call. The caller holds the lock.
func (b *Batcher[T, R]) promote() {
	busy := len(b.begun)
	if len(b.queue) == 0 || busy == b.Lanes || busy > 0 && b.waiting < b.Most/4 && time.Since(b.begun[busy-1]) < longCall {
		return
	}
	t := b.queue[0]
	b.queue = b.queue[1:]
	b.waiting -= len(t.items)
	t.began = time.Now()
	b.begun = append(b.begun, t.began)
	t.leads = true
	t.turn <- struct{}{}
}

// drop leaves out a ticket whose caller has gone.
func (b *Batcher[T, R]) drop(t *ticket[T, R]) {
	t.err = context.Cause(t.ctx)
	if b.Dropped != nil {
		b.Dropped(len(t.items))
	}
}

// lead makes one shared call for a ticket and those that wait behind it.
func (b *Batcher[T, R]) lead(first *ticket[T, R]) {
	batch, items := b.gather(first)
	var results []R
	if len(items) > 0 {
		results = b.Do(items)
	}
	for _, t := range batch {
		if t.err == nil {
			t.results, results = results[:len(t.items):len(t.items)], results[len(t.items):]
		}
		if t != first {
			t.turn <- struct{}{}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.Index(b.begun, first.began)
	b.begun = slices.Delete(b.begun, at, at+1)
	if took := time.Since(first.began); len(items) > 0 {
		b.usual += (took - b.usual) / usualOver
	}
	b.promote()
}

// usualOver is over how many calls the usual time of a call is taken.
const usualOver = 8

// gather takes those that ride in the call of a ticket, and their items.
func (b *Batcher[T, R]) gather(first *ticket[T, R]) (batch []*ticket[T, R], items []T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := 0
	batch = make([]*ticket[T, R], 0, 1+len(b.queue))
	items = make([]T, 0, min(len(first.items)+b.waiting, b.Most))
	add := func(t *ticket[T, R]) {
		batch = append(batch, t)
		if t.ctx.Err() != nil {
			b.drop(t)
			return
		}
		items = append(items, t.items...)
		size += len(t.items)
	}
	add(first)
	for len(b.queue) > 0 && size+len(b.queue[0].items) <= b.Most {
		t := b.queue[0]
		b.queue = b.queue[1:]
		b.waiting -= len(t.items)
		add(t)
	}
	return batch, items
}

// An Outlook is what items have to expect that are handed in now.
type Outlook struct {
	Next  bool          // they ride in the next call
	Wait  time.Duration // for their results, when calls take what they usually do
	Usual time.Duration // what a call takes
	Stuck time.Duration // for how long the oldest call has been under way
}

// Outlook returns what so many items have to expect.
func (b *Batcher[T, R]) Outlook(items int) Outlook {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting := b.waiting + items
	o := Outlook{Next: waiting <= b.Most, Usual: b.usual}
	o.Wait = b.usual + time.Duration(float64(b.usual)*float64(waiting)/float64(b.Most*b.Lanes))
	if len(b.begun) > 0 {
		o.Stuck = time.Since(b.begun[0])
	}
	return o
}
