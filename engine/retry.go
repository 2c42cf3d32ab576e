package engine

import (
	"hash/fnv"
	"math/rand/v2"
	"time"

	"procaas/dsl"
)

// DefaultRetry is the policy of handlers that set none.
func DefaultRetry() dsl.Retry {
	return dsl.Retry{
		Attempts: 3,
		MinDelay: 100 * time.Millisecond,
		MaxDelay: 15 * time.Minute,
		Factor:   2,
		Jitter:   0.1,
		On:       []string{"timeout", "connection", "5xx", "408", "425", "429"},
	}
}

// maxRetryAfter bounds the delay that a called service may ask for.
const maxRetryAfter = time.Hour

// NextDelay gives the delay that follows the delay prev, 0 before the first.
// Noise is a sample of the standard normal distribution.
//
// The first delay is the policy's min-delay. Each further one is the delay
// before, deviation included, times factor, up to max-delay; then a deviation
// of jitter times that is added. So max-delay bounds the mean, not the sample.
func NextDelay(policy dsl.Retry, prev time.Duration, noise float64) time.Duration {
	if prev == 0 {
		return policy.MinDelay
	}
	// A deviation may have brought the delay down to nearly nothing; growing
	// from there would keep it there.
	base := float64(max(prev, policy.MinDelay)) * policy.Factor
	base = min(base, float64(policy.MaxDelay))
	// 0 would mean that there was no delay before; the other bound keeps the
	// conversion defined.
	return time.Duration(min(max(base+noise*base*policy.Jitter, 1), 1<<62))
}

// noise gives the deviation of one delay. It depends on nothing but where it is
// used, so a run can be repeated exactly.
func noise(run, path string, attempt int) float64 {
	h := fnv.New64a()
	h.Write([]byte(run))
	h.Write([]byte{0})
	h.Write([]byte(path))
	return rand.New(rand.NewPCG(h.Sum64(), uint64(attempt))).NormFloat64()
}

// repeat tells whether what has failed so many times is to be repeated, and after
// what delay. Attempts that a crash cut off do not count: nobody knows their end.
func (r *record) repeat(s *Step, run string, failures int, err error) (time.Duration, bool) {
	if IsPermanent(err) || s.retry.Attempts > 0 && failures >= s.retry.Attempts {
		return 0, false
	}
	if d, ok := RetryDelay(err); ok {
		return min(max(d, 0), maxRetryAfter), true
	}
	if !InClass(err, s.retry.On) {
		return 0, false
	}
	r.delay = NextDelay(s.retry, r.delay, noise(run, s.Path, failures))
	return r.delay, true
}
