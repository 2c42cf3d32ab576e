package stub

import (
	"context"
	"math"
	"sync"
	"time"
)

// longestAnswer bounds the time of an answer, however many requests wait.
const longestAnswer = time.Minute

// A crowd has the requests in flight of a route that can be overloaded.
type crowd struct {
	spec *Overload

	mu     sync.Mutex // guards the following
	line   []seat     // in the order of arrival
	alarm  *time.Timer
	closed bool
}

// A seat is one request.
type seat struct {
	taken   time.Time
	latency time.Duration // without other requests
	hangs   bool          // it takes exactly this long, whatever others do
	done    chan struct{} // closed when answered
}

// wait waits for the latency of an answer. If the caller gives up, its request stays.
func (c *crowd) wait(ctx context.Context, latency time.Duration, hangs bool) {
	s := seat{taken: time.Now(), latency: latency, hangs: hangs, done: make(chan struct{})}
	c.mu.Lock()
	c.line = append(c.line, s)
	if len(c.line) == 1 {
		c.answer()
	}
	c.mu.Unlock()
	select {
	case <-s.done:
	case <-ctx.Done():
	}
}

// answer ends due requests, and sets the timer for the next. The caller holds the lock.
func (c *crowd) answer() {
	for len(c.line) > 0 && !c.closed {
		if wait := time.Until(c.due()); wait > 0 {
			c.alarm = time.AfterFunc(wait, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.answer()
			})
			return
		}
		close(c.line[0].done)
		c.line = c.line[1:]
	}
}

// due returns when the oldest request will be answered, unless more arrive.
func (c *crowd) due() time.Time {
	s := c.line[0]
	if s.hangs {
		return s.taken.Add(s.latency)
	}
	over := float64(max(0, len(c.line)-c.spec.Above)) / float64(c.spec.Per)
	took := float64(s.latency) * math.Pow(c.spec.Factor, over)
	return s.taken.Add(time.Duration(min(took, float64(longestAnswer))))
}

// close drops all requests.
func (c *crowd) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.alarm != nil {
		c.alarm.Stop()
	}
}
