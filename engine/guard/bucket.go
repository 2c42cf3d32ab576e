package guard

import (
	"sync"
	"time"
)

// A bucket spaces calls out to a rate. It remembers only when the next call would
// be due if all came evenly; calls may come earlier than that by its burst.
type bucket struct {
	mu    sync.Mutex // guards the following
	rate  float64    // calls per second, as asked last
	due   int64      // of the next call, in nanoseconds since 1970
	away  int64      // when the last one of those sent away shall ask again
	whole float64    // of all nodes together, as asked last
	took  int64      // places that were taken and not given back
	late  int64      // when a call had to wait last; 0 for never
	from  int64      // before the first call: when calls may begin, one by one; 0 is at once, with a burst
}

// Reserve takes the place of the next call and tells in how long it may start. A
// rate that is another one than before keeps what has been used of the burst.
func (b *bucket) Reserve(now time.Time, rate, burst float64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, step := now.UnixNano(), float64(time.Second)/rate
	if b.rate != rate && b.due > at {
		used := float64(b.due-at) / float64(time.Second) * b.rate
		// Those that wait already keep their places: what they have used counts, as far as anybody would wait for it.
		b.due = at + int64(min(used, burst+rate*ShortHold.Seconds())*step)
	}
	b.rate = rate
	if b.from != 0 {
		b.due, b.from = max(at, b.from)+int64((burst-1)*step), 0
	}
	b.due = max(b.due, at)
	delay := float64(b.due-at) - (burst-1)*step
	b.due += int64(step)
	b.took++
	if delay > 0 {
		b.late = at
	}
	return time.Duration(max(delay, 0))
}

// giveBack gives the place that was taken last back.
func (b *bucket) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due -= int64(float64(time.Second) / b.rate)
	b.took--
}

// sendAway returns the time at which a run shall ask again that has to wait for
// long. Runs that are sent away come back one by one, so many a second as pace says.
func (b *bucket) sendAway(now time.Time, delay time.Duration, pace float64) time.Time {
	const longest = time.Hour
	b.mu.Lock()
	defer b.mu.Unlock()
	at := now.Add(delay).UnixNano()
	next := b.away + int64(float64(time.Second)/pace)
	if next > at && next < at+int64(longest) {
		at = next
	}
	b.away = at
	return time.Unix(0, at).UTC()
}

// counted returns how many calls have taken a place, how many a second may on all nodes together, and when one had to
// wait last.
func (b *bucket) counted() (taken int64, whole float64, late int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.took, b.whole, b.late
}

// share notes which rate nodes share.
func (b *bucket) share(whole float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.whole = whole
}

// left is how many calls may begin at once.
func (b *bucket) left(now time.Time, rate, burst float64) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	used := float64(max(b.due-now.UnixNano(), 0)) / float64(time.Second) * rate
	return int(max(burst-used, 0))
}
