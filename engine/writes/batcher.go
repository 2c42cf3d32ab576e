package writes

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A Batcher combines concurrent calls into shared ones. While a call is in flight, items queue, and
// the next call takes them all. It needs no goroutine: one of the waiting callers makes the call
// for the others. A single item does not wait. Many small calls cost more than a few large ones. So
// another lane is used only if the queue fills a batch, or if the call in flight takes long.
//
// Items whose callers have gone before their turn are dropped.
type Batcher[T, R any] struct {
	Do      func(items []T) []R // the shared call; returns one result per item
	Dropped func(items int)     // called with the number of dropped items; may be nil
	Most    int                 // items in one shared call, at most
	Lanes   int                 // shared calls in flight, at most

	mu      sync.Mutex // guards the following
	queue   []*ticket[T, R]
	waiting int           // items in the queue
	begun   []time.Time   // start times of the calls in flight, oldest first
	usual   time.Duration // typical duration of a call
}

// MaxBatch is how many changes or events are written in one transaction.
const MaxBatch = 256

// longCall is longer than a commit usually takes. The cause may not affect the next call.
const longCall = 20 * time.Millisecond

// A ticket is one caller's place in the queue.
type ticket[T, R any] struct {
	ctx     context.Context // of the caller
	items   []T
	err     error // why there are no results
	results []R
	leads   bool          // it has a lane, and makes the call
	began   time.Time     // when it got the lane
	turn    chan struct{} // receives once: the results are there, or the ticket leads
}

// Call submits items and waits for their results. If ctx ends first, the outcome is unknown.
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

// leave removes a ticket from the queue. It returns false if the ticket leads, and so must make the
// call for others.
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

// promote gives a free lane to the oldest ticket if it is worth a call. The caller holds the lock.
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

// drop drops a ticket whose caller has gone.
func (b *Batcher[T, R]) drop(t *ticket[T, R]) {
	t.err = context.Cause(t.ctx)
	if b.Dropped != nil {
		b.Dropped(len(t.items))
	}
}

// lead makes one shared call for a ticket and those behind it.
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

// usualOver is over how many calls the typical duration is averaged.
const usualOver = 8

// gather takes the tickets that share the call of the first, and their items.
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

// An Outlook is what newly submitted items can expect.
type Outlook struct {
	Next  bool          // they are in the next call
	Wait  time.Duration // time until their results, if calls take the typical time
	Usual time.Duration // typical duration of a call
	Stuck time.Duration // how long the oldest call has been in flight
}

// Outlook returns what this many items can expect.
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
