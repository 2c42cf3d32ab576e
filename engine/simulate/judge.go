package simulate

import (
	"math"
	"time"
)

// A Verdict is what became of a service whose clients repeat by a policy.
type Verdict struct {
	Policy string `json:"policy"`

	Recovered bool `json:"recovered"`
	// TimeToRecover is counted from the end of the outage, in seconds; nil when
	// the service did not recover while it was watched.
	TimeToRecover *float64 `json:"time_to_recover_s"`

	// Goodput is answers per second that found their client waiting, after the
	// outage; the other two before and during it.
	Goodput       float64 `json:"goodput"`
	GoodputBefore float64 `json:"goodput_before"`
	GoodputDuring float64 `json:"goodput_during"`

	// PeakConcurrency counts requests in the service, those of clients that have
	// left included.
	PeakConcurrency int `json:"peak_concurrency"`

	PeakAttempts   int     `json:"peak_attempts_per_s"`
	AttemptsDuring float64 `json:"attempts_per_s_during"`
	TimeoutsAfter  float64 `json:"timeouts_per_s_after"`
	GivenUp        int     `json:"given_up"` // requests, in all

	Samples []Sample `json:"samples"` // one for each second
}

const (
	// window is over how long goodput is taken when recovery is judged.
	window = 5 * time.Second
	// enough is the share of the goodput before that counts as recovered.
	enough = 0.85
	// lasting is how long a recovery must hold to be one.
	lasting = 10
)

// Judge runs a policy through a scenario and says what became of the service.
func Judge(s Scenario, p Policy) Verdict {
	simulate := Backoff
	if p.Limited {
		simulate = Limited
	}
	samples := simulate(s, p.Retry)
	stop, resume := int(s.Before/time.Second), int((s.Before+s.Outage)/time.Second)
	before, during, after := samples[:stop], samples[stop:resume], samples[resume:]
	good := func(s Sample) int { return s.Good }
	v := Verdict{
		Policy:         p.Name,
		Goodput:        mean(after, good),
		GoodputBefore:  mean(before, good),
		GoodputDuring:  mean(during, good),
		AttemptsDuring: mean(during, func(s Sample) int { return s.Attempts }),
		TimeoutsAfter:  mean(after, func(s Sample) int { return s.Timeouts }),
		Samples:        samples,
	}
	for _, s := range samples {
		v.PeakConcurrency = max(v.PeakConcurrency, s.Concurrency)
		v.PeakAttempts = max(v.PeakAttempts, s.Attempts)
		v.GivenUp += s.GivenUp
	}
	if t := recovery(after, enough*v.GoodputBefore); len(after)-t >= lasting {
		seconds := float64(t)
		v.Recovered, v.TimeToRecover = true, &seconds
	}
	return v
}

// recovery gives the second from which on the goodput of each window is enough.
func recovery(after []Sample, want float64) int {
	const n = int(window / time.Second)
	for from := len(after) - n; from >= 0; from-- {
		if mean(after[from:from+n], func(s Sample) int { return s.Good }) < want {
			return from + n
		}
	}
	return 0
}

// mean gives the mean of a number over the samples, with two digits.
func mean(samples []Sample, of func(Sample) int) float64 {
	sum := 0
	for _, s := range samples {
		sum += of(s)
	}
	return math.Round(100*float64(sum)/float64(max(1, len(samples)))) / 100
}
