package engine

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"procaas/dsl"
)

// A guard decides whether a handler may run now. At present it knows the rate
// limits, which hold for each node.
type guard struct {
	limits sync.Map // limitKey → *limit
}

// A limitKey tells limits apart. A new definition may change the rate of a path
// while runs go on with the old one.
type limitKey struct {
	path  string
	rate  dsl.Rate
	burst int
}

// A limit is the rate limit of one handler.
type limit struct {
	bucket *rate.Limiter

	mu   sync.Mutex // guards last
	last time.Time  // that a run was sent away until
}

// shortHold is how long a run may wait for its turn in memory. Its place is kept
// for it. A run that has to wait longer gives its place back.
const shortHold = time.Second

// A pass remembers the places that a run holds in the queues of limits, so that
// asking again when the time has come does not take another one.
type pass map[string]time.Time

// verdict decides about one handler of a run.
func (g *guard) verdict(s *Step, p pass, now time.Time) Verdict {
	spec := s.Handler.RateLimit
	if spec == nil {
		return Verdict{}
	}
	if at, ok := p[s.Path]; ok {
		if at.After(now) {
			return Verdict{Hold: at, Reason: rateReason(spec)}
		}
		delete(p, s.Path)
		return Verdict{}
	}
	l := g.limit(s.Path, spec)
	r := l.bucket.ReserveN(now, 1)
	delay := r.DelayFrom(now)
	if delay == 0 {
		return Verdict{}
	}
	if spec.Over == "skip" && !s.Handler.IsCritical() {
		r.CancelAt(now)
		return Verdict{Skip: true, Reason: rateReason(spec)}
	}
	at := now.Add(delay)
	if delay <= shortHold {
		p[s.Path] = at
		return Verdict{Hold: at, Reason: rateReason(spec)}
	}
	r.CancelAt(now)
	return Verdict{Hold: l.sendAway(at), Reason: rateReason(spec)}
}

// limit gives the limit of a path.
func (g *guard) limit(path string, spec *dsl.RateLimit) *limit {
	key := limitKey{path, spec.Rate, spec.Burst}
	if l, ok := g.limits.Load(key); ok {
		return l.(*limit)
	}
	burst := spec.Burst
	if burst == 0 {
		burst = max(1, int(spec.Rate.PerSecond()))
	}
	l, _ := g.limits.LoadOrStore(key, &limit{
		bucket: rate.NewLimiter(rate.Limit(spec.Rate.PerSecond()), burst),
	})
	return l.(*limit)
}

// sendAway gives the time at which a run shall ask again. Runs that are sent
// away come back one by one, at the rate of the limit.
func (l *limit) sendAway(at time.Time) time.Time {
	const longest = time.Hour
	l.mu.Lock()
	defer l.mu.Unlock()
	step := time.Duration(float64(time.Second) / float64(l.bucket.Limit()))
	if next := l.last.Add(step); next.After(at) && next.Before(at.Add(longest)) {
		at = next
	}
	l.last = at
	return at
}

// rateReason tells people why a handler waits or is left out.
func rateReason(r *dsl.RateLimit) string {
	return fmt.Sprintf("over its rate limit of %s", formatRate(r.Rate))
}

// formatRate writes a rate as authors do.
func formatRate(r dsl.Rate) string {
	unit := r.Per.String()
	switch r.Per {
	case time.Second:
		unit = "s"
	case time.Minute:
		unit = "m"
	case time.Hour:
		unit = "h"
	case 24 * time.Hour:
		unit = "d"
	}
	return fmt.Sprintf("%g/%s", r.Count, unit)
}
