package credentials

import (
	"math"
	"sync"
	"time"
)

// A quota is what the bearer of a token may still hand in on this node.
type quota struct {
	access *Access
	token  string

	mu  sync.Mutex // guards the following
	due time.Time  // when all that was handed in is within the rate
}

// quotaAhead is for how long a bearer may be ahead of the rate: what comes at once need not be spread.
const quotaAhead = time.Second

// Spend takes events or tasks from the quota of the token. Otherwise it returns in how long to ask again.
// A request is taken as a whole, as long as those before it were within the quota. Nodes have equal parts of it.
func (g Grant) Spend(items int) (wait time.Duration) {
	if g.quota == nil {
		return 0
	}
	q := g.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.access.Now()
	if wait = q.due.Sub(now.Add(quotaAhead)); wait > 0 {
		q.access.Overspent(q.token, items)
		return wait
	}
	if q.due.Before(now) {
		q.due = now
	}
	took := float64(items) / g.rate * float64(max(1, q.access.Sharers())) * float64(time.Second)
	q.due = q.due.Add(time.Duration(min(took, math.MaxInt64/2)))
	return 0
}

// quotaOf is that of a token, which stays the same when tokens are read again.
func (a *Access) quotaOf(t *liveToken) *quota {
	if t.rate == 0 {
		return nil
	}
	q := t.quota.Load()
	if q == nil {
		kept, _ := a.quotas.LoadOrStore(t.name, &quota{access: a, token: t.name})
		q = kept.(*quota)
		t.quota.Store(q)
	}
	return q
}
