package guard

import (
	"sync"
	"time"
)

// A bucket limits the rate of calls. It remembers only when the next call would be due if all calls
// were evenly spaced. Calls may come earlier than that by its burst.
type bucket struct {
	mu    sync.Mutex // guards the following
	rate  float64    // calls per second, as last requested
	due   int64      // of the next call, in nanoseconds since 1970
	away  int64      // when the last delayed run asks again
	whole float64    // rate of all nodes together, as last requested
	took  int64      // places that were taken and not returned
	late  int64      // when a call last had to wait; 0 for never
	from  int64      // before the first call: when calls may begin, one at a time; 0 is at once, with a burst
}

// Reserve takes the place of the next call and returns in how long it may start. If the rate has
// changed, the used part of the burst stays used.
func (b *bucket) Reserve(now time.Time, rate, burst float64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, step := now.UnixNano(), float64(time.Second)/rate
	if b.rate != rate && b.due > at {
		used := float64(b.due-at) / float64(time.Second) * b.rate
		// Waiting calls keep their places, so what they have used counts, up to the longest wait.
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

// giveBack returns the place that was taken last.
func (b *bucket) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due -= int64(float64(time.Second) / b.rate)
	b.took--
}

// sendAway returns when a run that has to wait long asks again. Such runs come back one at a time,
// pace per second.
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

// counted returns how many calls have taken a place, the rate of all nodes together, and when a
// call last had to wait.
func (b *bucket) counted() (taken int64, whole float64, late int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.took, b.whole, b.late
}

// share sets the rate that nodes share.
func (b *bucket) share(whole float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.whole = whole
}

// left returns how many calls may begin at once.
func (b *bucket) left(now time.Time, rate, burst float64) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	used := float64(max(b.due-now.UnixNano(), 0)) / float64(time.Second) * rate
	return int(max(burst-used, 0))
}
