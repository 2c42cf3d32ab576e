package core

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/model"
)

// RetryInputs are the inputs of a delay, other than the policy.
type RetryInputs struct {
	Number int           // 1 for the first
	Before time.Duration // the delay before the previous retry; 0 for none
	Noise  float64       // a sample of the standard normal distribution
}

// NextDelay returns the delay before a retry.
//
// If jitter is a number, the first delay is the policy's min-delay. Each further delay is the
// previous one, including its deviation, times factor, at most max-delay. Then a random deviation
// of jitter times that is added. So max-delay bounds the mean, not the sample. If jitter is a word
// of [datum.Jitter], the delay is uniform in a range that max-delay bounds.
func NextDelay(policy tree.Retry, r RetryInputs) time.Duration {
	low, most := float64(policy.MinDelay), float64(policy.MaxDelay)
	var delay float64
	switch policy.Jitter.Word {
	case datum.FullJitter:
		delay = min(low*math.Pow(policy.Factor, float64(r.Number-1)), most) * evenly(r.Noise)
	case datum.DecorrelatedJitter:
		high := min(3*max(float64(r.Before), low), most)
		delay = low + (high-low)*evenly(r.Noise)
	default:
		if r.Before == 0 {
			return policy.MinDelay
		}
		// A deviation may have brought the delay close to zero. Growing from there would keep it
		// there.
		base := min(max(float64(r.Before), low)*policy.Factor, most)
		delay = base + r.Noise*base*policy.Jitter.Share
	}
	// 0 would mean that there was no delay before. The upper bound keeps the conversion defined.
	return time.Duration(min(max(delay, 1), 1<<62))
}

// askedDelay returns the delay if a service or a handler type has asked for one. It is never shorter. The policy's
// deviation is added, so that not all callers return at once.
func askedDelay(policy tree.Retry, asked time.Duration, r RetryInputs) time.Duration {
	if policy.Jitter.Word != "" {
		return asked + min(NextDelay(policy, r), asked)
	}
	return asked + time.Duration(float64(asked)*policy.Jitter.Share*math.Abs(r.Noise))
}

// evenly converts a sample of the standard normal distribution to one of the uniform distribution
// between 0 and 1.
func evenly(noise float64) float64 { return math.Erfc(-noise/math.Sqrt2) / 2 }

// noise returns the deviation of one delay. It depends only on its arguments, so a run can be
// repeated exactly.
func noise(run, path string, attempt int) float64 {
	h := fnv.New64a()
	h.Write([]byte(run))
	h.Write([]byte{0})
	h.Write([]byte(path))
	return rand.New(rand.NewPCG(h.Sum64(), uint64(attempt))).NormFloat64()
}

// repeat reports whether to retry after this many failures, and after what delay. Attempts that a
// crash interrupted do not count, because their outcome is unknown.
func (r *record) repeat(s unit, run string, failures int, err error) (time.Duration, bool) {
	if model.IsPermanent(err) || s.Retry.Attempts > 0 && failures >= s.Retry.Attempts {
		return 0, false
	}
	next := RetryInputs{Number: failures, Before: r.delay, Noise: noise(run, s.ref(), failures)}
	wait, told := model.RetryDelay(err)
	if told && !model.IsAsked(err) {
		return askedDelay(s.Retry, wait, next), true
	}
	if !model.InClass(err, s.Retry.On) {
		return 0, false
	}
	r.delay = NextDelay(s.Retry, next) // grows also while a service asks for longer ones
	if told {
		return max(r.delay, askedDelay(s.Retry, wait, next)), true
	}
	return r.delay, true
}

// again reports whether to retry an attempt that does not count, and after what delay: always the
// first one. The guard holds the retry while its service is down.
func (r *record) again(s unit, run string, err error) (time.Duration, bool) {
	fresh := record{}
	return fresh.repeat(s, run, 1, err)
}
