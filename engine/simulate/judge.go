package simulate

import (
	"math"
	"slices"
	"time"
)

// A Verdict says what happened to a service whose clients retry by a policy.
type Verdict struct {
	Policy string `json:"policy"`

	// Real reports whether the numbers come from real connections; see [CompareReal].
	Real bool `json:"real"`

	// Attempts is after how many attempts a client gives up. 0 means never.
	Attempts int `json:"attempts"`

	// Recovered reports whether the service recovered in every run. Except for the next three, all
	// other numbers are from the first run.
	Recovered bool `json:"recovered"`

	// TimeToRecover is counted from the end of the outage, in seconds. It is the longest of all
	// runs, or nil if the service did not recover in one of them while it was watched.
	TimeToRecover *float64 `json:"time_to_recover_s"`

	Runs     int `json:"runs"`           // each with its own seed
	Recovers int `json:"recovered_runs"` // runs in which it recovered

	// Goodput is the number of answers per second whose client was still waiting, after the outage.
	// The other two are before and during it.
	Goodput       float64 `json:"goodput"`
	GoodputBefore float64 `json:"goodput_before"`
	GoodputDuring float64 `json:"goodput_during"`

	// PeakConcurrency counts requests in the service, including those of clients that have left.
	PeakConcurrency int `json:"peak_concurrency"`

	PeakAttempts   int     `json:"peak_attempts_per_s"`
	AttemptsDuring float64 `json:"attempts_per_s_during"`
	TimeoutsAfter  float64 `json:"timeouts_per_s_after"`
	GivenUp        int     `json:"given_up"` // total number of requests
	// attempts from the time of the fault that reached the service after it
	Late   int `json:"arrived_late"`
	Failed int `json:"attempts_during"` // attempts during the fault

	Samples []Sample `json:"samples"` // one per second
}

const (
	// window is the period over which attempts are counted to judge recovery.
	window = 5 * time.Second
	// unheard is the share of the attempts that may get no answer in time. The number of requests
	// is no criterion, because it is random.
	unheard = 0.05
	// stranded is the share of the clients that may still retry a failed request.
	stranded = 0.15
	// lasting is how many seconds a recovery must last.
	lasting = 10
)

// JudgeAll runs a policy through a scenario with a number of seeds, starting with the scenario's.
func JudgeAll(s Scenario, p Policy, seeds int) Verdict {
	v := Judge(s, p)
	for range seeds - 1 {
		s.Seed++
		next := Judge(s, p)
		v.Runs++
		v.Recovers += next.Recovers
		v.Recovered = v.Recovered && next.Recovered
		if !v.Recovered {
			v.TimeToRecover = nil
		} else if *next.TimeToRecover > *v.TimeToRecover {
			v.TimeToRecover = next.TimeToRecover
		}
	}
	return v
}

// Judge runs a policy through a scenario and returns the verdict.
func Judge(s Scenario, p Policy) Verdict {
	simulate := Backoff
	if p.Limited {
		simulate = limited
	}
	return judge(s, p, simulate(s, p.Retry))
}

// judge returns the verdict about the samples of a run.
func judge(s Scenario, p Policy, samples []Sample) Verdict {
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

// recovery returns the second from which nearly all attempts are answered in time, and few clients
// still retry a failed request.
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
