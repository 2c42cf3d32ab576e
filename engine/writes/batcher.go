package writes

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A Batcher combines concurrent calls into shared ones. While a call is in flight, items queue, and
// the next call takes them all. A single item does not wait. Many small calls cost more than a few
// large ones. So another lane is used only if the queue fills a batch, or if the call in flight takes
// long.
//
// No caller makes the shared call itself, because it may hang: a caller can always leave, and
// [Batcher.Release] answers all of them. The call goes on without them. Items whose callers have left
// before their turn are dropped.
type Batcher[T, R any] struct {
	Shared  Shared[T, R]    // makes the calls
	Dropped func(items int) // called with the number of dropped items; may be nil
	Most    int             // items in one shared call, at most
	Lanes   int             // shared calls in flight, at most

	mu      sync.Mutex // guards the following
	queue   []*ticket[T, R]
	waiting int           // items in the queue
	calls   []*call[T, R] // in flight, oldest first
	usual   time.Duration // typical duration of a call

	spare sync.Pool // tickets that nobody has any more
}

// Shared makes the shared calls of a [Batcher].
type Shared[T, R any] interface {
	// Write returns one result per item. It is called by as many goroutines at once as there are lanes.
	Write(items []T) []R
}

// MaxBatch is how many changes or events are written in one transaction.
const MaxBatch = 256

// longCall is longer than a commit usually takes. The cause may not affect the next call.
const longCall = 20 * time.Millisecond

// A ticket is one caller's place in the queue.
type ticket[T, R any] struct {
	ctx   context.Context // of the caller
	items []T
	end   chan outcome[R] // has room for the first outcome; later ones are not sent
	one   [1]T            // memory for items
}

// An outcome is what a caller gets.
type outcome[R any] struct {
	results []R
	err     error // why there are no results
}

// A call is a shared call in flight.
type call[T, R any] struct {
	began time.Time
	batch []*ticket[T, R] // nil until the call has taken them from the queue
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

// CallOne is Call for one item.
func (b *Batcher[T, R]) CallOne(ctx context.Context, item T) (result R, err error) {
	t := b.ticket(ctx)
	t.one[0] = item
	t.items = t.one[:]
	results, err := b.await(t)
	if err != nil {
		return result, err
	}
	return results[0], nil
}

func (b *Batcher[T, R]) wait(ctx context.Context, items []T) ([]R, error) {
	t := b.ticket(ctx)
	t.items = items
	return b.await(t)
}

// ticket returns a ticket without items.
func (b *Batcher[T, R]) ticket(ctx context.Context) *ticket[T, R] {
	t, ok := b.spare.Get().(*ticket[T, R])
	if !ok {
		t = &ticket[T, R]{end: make(chan outcome[R], 1)}
	}
	t.ctx = ctx
	return t
}

// await queues a ticket and waits for its outcome. Results come from the call that has taken the ticket, and are its last
// use. After an error, a call may still have it.
func (b *Batcher[T, R]) await(t *ticket[T, R]) ([]R, error) {
	b.mu.Lock()
	b.queue = append(b.queue, t)
	b.waiting += len(t.items)
	b.promote()
	b.mu.Unlock()

	select {
	case o := <-t.end:
		if o.err == nil {
			*t = ticket[T, R]{end: t.end}
			b.spare.Put(t)
		}
		return o.results, o.err
	case <-t.ctx.Done():
		b.leave(t)
		return nil, context.Cause(t.ctx)
	}
}

// answer gives a caller its outcome, unless it has one already.
func (t *ticket[T, R]) answer(results []R, err error) {
	select {
	case t.end <- outcome[R]{results, err}:
	default:
	}
}

// leave removes a ticket from the queue. A call that has taken it goes on.
func (b *Batcher[T, R]) leave(t *ticket[T, R]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.queue, t); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
		b.waiting -= len(t.items)
		b.drop(t, context.Cause(t.ctx))
	}
}

// Release answers all callers with an error, those in the queue and those of the calls in flight.
// What is in flight may still succeed. The lanes stay taken until it ends: a store that hangs must
// not get more and more calls.
func (b *Batcher[T, R]) Release(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.calls {
		for _, t := range c.batch {
			t.answer(nil, err)
		}
	}
	for _, t := range b.queue {
		b.drop(t, err)
	}
	b.queue, b.waiting = nil, 0
}

// promote gives a free lane to the queue if it is worth a call. The caller holds the lock.
func (b *Batcher[T, R]) promote() {
	if len(b.queue) == 0 || len(b.calls) == b.Lanes {
		return
	}
	if busy := len(b.calls); busy > 0 {
		last := b.calls[busy-1]
		if last.batch == nil {
			return // it is about to take the queue
		}
		if b.waiting < b.Most/4 && time.Since(last.began) < longCall {
			return
		}
	}
	c := &call[T, R]{began: time.Now()}
	b.calls = append(b.calls, c)
	go b.make(c)
}

// drop answers a ticket whose items are not written. The caller holds the lock.
func (b *Batcher[T, R]) drop(t *ticket[T, R], err error) {
	t.answer(nil, err)
	if b.Dropped != nil {
		b.Dropped(len(t.items))
	}
}

// make makes one shared call, and passes its lane on.
func (b *Batcher[T, R]) make(c *call[T, R]) {
	growStack()
	// What is ready to run goes first, since much of it is about to add items. At low load there is nothing, so no time passes.
	runtime.Gosched()
	items := b.gather(c)
	var results []R
	if len(items) > 0 {
		results = b.Shared.Write(items)
	}
	b.mu.Lock()
	at := slices.Index(b.calls, c)
	b.calls = slices.Delete(b.calls, at, at+1)
	if took := time.Since(c.began); len(items) > 0 {
		b.usual += (took - b.usual) / usualOver
	}
	b.promote()
	b.mu.Unlock()
	for _, t := range c.batch {
		n := len(t.items)
		t.answer(results[:n:n], nil)
		results = results[n:]
	}
}

// growStack makes the stack of a new goroutine large enough for most calls, while there is nothing on it. Otherwise it would grow
// in several steps, and each would copy what the store and its driver have there.
//
//go:noinline
func growStack() byte {
	var space [8 << 10]byte
	return space[runtime.NumCPU()%len(space)]
}

// usualOver is over how many calls the typical duration is averaged.
const usualOver = 8

// gather takes tickets from the queue for a call, and returns their items.
func (b *Batcher[T, R]) gather(c *call[T, R]) (items []T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.batch = make([]*ticket[T, R], 0, len(b.queue))
	items = make([]T, 0, min(b.waiting, b.Most))
	for len(b.queue) > 0 && len(items)+len(b.queue[0].items) <= b.Most {
		t := b.queue[0]
		b.queue = b.queue[1:]
		b.waiting -= len(t.items)
		if t.ctx.Err() != nil {
			b.drop(t, context.Cause(t.ctx))
			continue
		}
		c.batch = append(c.batch, t)
		items = append(items, t.items...)
	}
	b.promote() // what did not fit may fill a call of its own
	return items
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
	if len(b.calls) > 0 {
		o.Stuck = time.Since(b.calls[0].began)
	}
	return o
}
