package simulate

import (
	"math"
	"slices"
	"time"
)

// A Verdict is what became of a service whose clients repeat by a policy.
type Verdict struct {
	Policy string `json:"policy"`

	// Attempts is after how many a client gives a request up; 0 for never.
	Attempts int `json:"attempts"`

	// Recovered reports whether the service did so in every run. All other numbers but the next three
	// are those of the first one.
	Recovered bool `json:"recovered"`

	// TimeToRecover is counted from the end of the outage, in seconds, the longest of all runs;
	// nil when the service did not recover in one of them while it was watched.
	TimeToRecover *float64 `json:"time_to_recover_s"`

	Runs     int `json:"runs"`           // each with a seed of its own
	Recovers int `json:"recovered_runs"` // those in which it recovered

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
	GivenUp        int     `json:"given_up"`        // requests, in all
	Late           int     `json:"arrived_late"`    // attempts of the fault's time that reached the service after it
	Failed         int     `json:"attempts_during"` // attempts of that time

	Samples []Sample `json:"samples"` // one for each second
}

const (
	// window is over how long attempts are counted when recovery is judged.
	window = 5 * time.Second
	// unheard is the share of the attempts that may find no answer in time. How many requests come
	// says nothing: that is chance, and in a lull they are few.
	unheard = 0.05
	// stranded is the share of the clients that may still repeat a request that has failed.
	stranded = 0.15
	// lasting is how long a recovery must hold to be one.
	lasting = 10
)

// JudgeAll runs a policy through a scenario with as many seeds, from that of the scenario on.
func JudgeAll(s Scenario, p Policy, seeds int) Verdict {
	v := Judge(s, p)
	for range seeds - 1 {
		s.Seed++
		next := Judge(s, p)
		v.Runs++
		v.Recovers += next.Recovers
		if v.Recovered = v.Recovered && next.Recovered; !v.Recovered {
			v.TimeToRecover = nil
		} else if *next.TimeToRecover > *v.TimeToRecover {
			v.TimeToRecover = next.TimeToRecover
		}
	}
	return v
}

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
		Attempts:       p.Retry.Attempts,
		Runs:           1,
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
		v.Late += s.Late
	}
	for _, s := range during {
		v.Failed += s.Attempts
	}
	if t := recovery(after, stranded*float64(s.Clients)); len(after)-t >= lasting {
		seconds := float64(t)
		v.Recovered, v.Recovers, v.TimeToRecover = true, 1, &seconds
	}
	return v
}

// recovery returns the second from which on nearly all attempts are answered in time, and few
// clients are left that still repeat what has failed.
func recovery(after []Sample, repeating float64) int {
	const n = int(window / time.Second)
	for second, a := range slices.Backward(after) {
		failed, attempts := 0, 0
		for _, s := range after[max(0, second-n+1) : second+1] {
			failed, attempts = failed+s.Timeouts+s.Refused, attempts+s.Attempts
		}
		if float64(failed) > unheard*float64(max(attempts, 1)) || float64(a.Repeated) > repeating {
			return second + 1
		}
	}
	return 0
}

// mean returns the mean of a number over the samples, with two digits.
func mean(samples []Sample, of func(Sample) int) float64 {
	sum := 0
	for _, s := range samples {
		sum += of(s)
	}
	return math.Round(100*float64(sum)/float64(max(1, len(samples)))) / 100
}
