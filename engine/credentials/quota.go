package credentials

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"
)

// A quota is what the bearer of a token may still hand in on this node.
type quota struct {
	access *Access
	token  string

	mu      sync.Mutex // guards the following
	due     time.Time  // when all that was handed in is within the rate
	refused Refused
	last    time.Time // when it refused something
}

// Refused is what a node refuses because the quota of a token is used up.
type Refused struct {
	Token string    `json:"token"`
	Items int       `json:"items"` // events and tasks
	Since time.Time `json:"since"` // there has been no minute without a refusal since then
}

// refusals is how long refusals count as present.
const refusals = time.Minute

// refuse notes that events or tasks were refused.
func (q *quota) refuse(items int, now time.Time) {
	if now.Sub(q.last) > refusals {
		q.refused = Refused{Token: q.token, Since: now}
	}
	q.refused.Items, q.last = q.refused.Items+items, now
	q.access.Overspent(q.token, items)
}

// OverQuota lists what this node refused in the last minute, by token.
func (a *Access) OverQuota() []Refused {
	out, now := []Refused{}, a.Now()
	a.quotas.Range(func(_, kept any) bool {
		q := kept.(*quota)
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.refused.Items > 0 && now.Sub(q.last) <= refusals {
			out = append(out, q.refused)
		}
		return true
	})
	slices.SortFunc(out, func(a, b Refused) int { return cmp.Compare(a.Token, b.Token) })
	return out
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
	wait = q.due.Sub(now.Add(quotaAhead))
	if wait > 0 {
		q.refuse(items, now)
		return wait
	}
	if q.due.Before(now) {
		q.due = now
	}
	took := float64(items) / g.rate * float64(g.Sharers()) * float64(time.Second)
	q.due = q.due.Add(time.Duration(min(took, math.MaxInt64/2)))
	return 0
}

// Sharers returns how many nodes have equal parts of the quota.
func (g Grant) Sharers() int { return max(1, g.quota.access.Sharers()) }

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
