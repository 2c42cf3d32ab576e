package simulate

import (
	"math"
	"math/rand/v2"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/core"
)

// A world is a service, and the time of its calls.
type world struct {
	Scenario
	rnd *rand.Rand

	now    time.Duration
	agenda agenda

	faulty   bool    // the fault is in effect
	stopped  bool    // and the service is stopped
	repeated int     // requests that have failed and are not answered yet
	backlog  []*call // waiting for the stopped service
	underway []*call // in the service, in the order of their start

	samples []Sample
}

// A call is one request.
type call struct {
	sent     time.Duration
	taken    time.Duration // when the service started it
	resend   time.Duration // when the network tries it again
	during   bool          // sent during the fault
	left     bool          // the client no longer waits
	done     bool
	answered func(took time.Duration)
}

func newWorld(s Scenario) *world {
	return &world{
		Scenario: s, rnd: rand.New(rand.NewPCG(s.Seed, 0)),
		samples: make([]Sample, int((s.Before+s.Outage+s.After)/time.Second)),
	}
}

// run runs until the scenario is over.
func (w *world) run() {
	if w.Outage > 0 {
		w.agenda.add(w.Before, func() { w.faulty, w.stopped = true, w.Fault == FaultStopped })
		w.agenda.add(w.Before+w.Outage, w.resume)
	}
	end := time.Duration(len(w.samples)) * time.Second
	for {
		at, answers := w.nextAnswer()
		if next := w.agenda.next(); !answers || at > next {
			at, answers = next, false
		}
		w.fill(min(at, end))
		if at >= end {
			return
		}
		w.now = at
		if answers {
			w.answer()
		} else {
			w.agenda.take()()
		}
		w.count().Concurrency = max(w.count().Concurrency, len(w.underway))
		w.count().Repeated = w.repeated
	}
}

// fill records the concurrency of the seconds that begin before a time.
func (w *world) fill(until time.Duration) {
	for s := w.now/time.Second + 1; s < time.Duration(len(w.samples)) && s*time.Second <= until; s++ {
		w.samples[s].Concurrency, w.samples[s].Repeated = len(w.underway), w.repeated
	}
}

// count returns the sample of the current second.
func (w *world) count() *Sample { return &w.samples[w.now/time.Second] }

// after schedules an action.
func (w *world) after(d time.Duration, what func()) {
	w.agenda.add(w.now+min(d, 3*maxSpan), what)
}

// chance returns an exponentially distributed time.
func (w *world) chance(mean time.Duration) time.Duration {
	return time.Duration(w.rnd.ExpFloat64() * float64(mean))
}

// nextDelay returns the delay before a retry.
func (w *world) nextDelay(policy tree.Retry, failures int, before time.Duration) time.Duration {
	return core.NextDelay(policy, core.RetryInputs{Number: failures, Before: before, Noise: w.rnd.NormFloat64()})
}

// send sends a request. The client leaves if nobody answers in time. The service does not notice
// and continues.
func (w *world) send(answered func(took time.Duration), left func()) {
	c := &call{sent: w.now, resend: firstResend, during: w.faulty, answered: answered}
	w.count().Attempts++
	if w.faulty && w.Fault == FaultRefused {
		w.after(w.refusal(), func() {
			w.count().Refused++
			left()
		})
		return
	}
	w.after(w.Timeout, func() {
		if !c.done {
			c.left = true
			w.count().Timeouts++
			left()
		}
	})
	w.reach(c)
}

// If the backlog is full, the network retries the connection with doubling delays, like TCP, for
// minutes, whether its client still waits or not. These connections meet a service that recovers.
const (
	firstResend = 200 * time.Millisecond
	lastResend  = 100 * time.Second
)

// reach delivers a call to the service, or to its backlog while it is stopped.
func (w *world) reach(c *call) {
	switch {
	case c.left && w.Abandon && c.resend > firstResend:
		// The client has closed its socket, so nothing connects for it.
	case !w.stopped:
		if c.during && !w.faulty {
			w.count().Late++
		}
		c.taken = w.now
		w.underway = append(w.underway, c)
	case len(w.backlog) < w.Backlog:
		w.backlog = append(w.backlog, c)
	case c.resend < lastResend:
		w.after(c.resend, func() { w.reach(c) })
		c.resend *= 2
	}
}

// resume makes the service start everything that waits for it.
func (w *world) resume() {
	w.faulty, w.stopped = false, false
	for _, c := range w.backlog {
		w.reach(c)
	}
	w.backlog = nil
}

// latency returns how long a request takes at a concurrency. The service recomputes it all the
// time, so a request gets faster when others have ended.
func (s Scenario) latency(concurrency int, faulty bool) time.Duration {
	over := float64(max(0, concurrency-s.Limit)) / s.Scale
	takes := float64(s.MinDelay) * math.Pow(s.Factor, over)
	if faulty && s.Fault == FaultBrownout {
		takes *= brownout
	}
	return time.Duration(min(takes, float64(3*maxSpan)))
}

// nextAnswer returns when the service answers next. It answers in order.
func (w *world) nextAnswer() (time.Duration, bool) {
	if w.stopped || len(w.underway) == 0 {
		return 0, false
	}
	return max(w.now, w.underway[0].taken+w.latency(len(w.underway), w.faulty)), true
}

// answer ends the oldest request. The work was useless if its client has left.
func (w *world) answer() {
	c := w.underway[0]
	w.underway[0] = nil
	w.underway = w.underway[1:]
	c.done = true
	if !c.left {
		w.count().Good++
		c.answered(w.now - c.sent)
	}
}
