package stats

import (
	"sync"
	"time"
)

// sayEvery is the interval for logging the same thing.
const sayEvery = 10 * time.Second

// A Teller bounds how often the same thing is logged. The zero Teller has logged nothing yet.
type Teller struct {
	saying sync.Mutex // guards the following
	said   time.Time  // the last time
	unsaid int        // how often it happened since then
}

// Say reports whether to log now, and how often it happened unlogged since the last time.
func (t *Teller) Say(now time.Time) (unsaid int, ok bool) {
	t.saying.Lock()
	defer t.saying.Unlock()
	if !t.said.IsZero() && now.Sub(t.said) < sayEvery {
		t.unsaid++
		return 0, false
	}
	unsaid, t.said, t.unsaid = t.unsaid, now, 0
	return unsaid, true
}
