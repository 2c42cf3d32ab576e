package simulate

import (
	"math"
	"math/rand/v2"
	"time"

	"procaas/dsl"
	"procaas/engine"
)

// A Sample is what happened in one second.
type Sample struct {
	Concurrency int `json:"concurrency"` // most requests under way at a time, those of clients that have left included
	Attempts    int `json:"attempts"`
	Good        int `json:"good"` // answers that found their client waiting
	Timeouts    int `json:"timeouts"`
	GivenUp     int `json:"given_up"` // requests whose client has used up its attempts
}

// Backoff lets clients with a policy go through a scenario, and gives what
// happened in each second.
func Backoff(s Scenario, policy dsl.Retry) []Sample {
	c := crowd{
		Scenario: s, policy: policy, rnd: rand.New(rand.NewPCG(s.Seed, 0)),
		clients: make([]client, s.Clients),
		samples: make([]Sample, int((s.Before+s.Outage+s.After)/time.Second)),
	}
	for i := range c.clients {
		c.think(i)
	}
	c.run()
	return c.samples
}

// A crowd is clients and their service at one time of a simulation.
type crowd struct {
	Scenario
	policy dsl.Retry
	rnd    *rand.Rand

	now     time.Duration
	agenda  agenda
	clients []client

	stopped  bool
	waiting  []*call // for the service to take them up, while it is stopped
	underway []*call // in the service, in the order in which it took them up

	samples []Sample
}

// A client thinks, calls, and when nobody answers pauses and calls again.
type client struct {
	failures int
	delay    time.Duration // before the last repetition
}

// A call is one request on its way.
type call struct {
	client int
	taken  time.Duration // when the service took it up
	resend time.Duration // after which the network tries it again
	left   bool          // the client waits no more
	done   bool
}

// run takes the crowd through the whole scenario.
func (c *crowd) run() {
	c.agenda.add(c.Before, func() { c.stopped = true })
	c.agenda.add(c.Before+c.Outage, c.resume)
	end := time.Duration(len(c.samples)) * time.Second
	for {
		at, finishes := c.nextAnswer()
		if !finishes || at > c.agenda.next() {
			at = c.agenda.next()
			finishes = false
		}
		if at >= end {
			c.fill(end)
			return
		}
		c.fill(at)
		c.now = at
		if finishes {
			c.answer()
		} else {
			c.agenda.take()()
		}
		c.count().Concurrency = max(c.count().Concurrency, len(c.underway))
	}
}

// fill notes the concurrency of the seconds that begin before the time to come.
func (c *crowd) fill(until time.Duration) {
	for s := c.now/time.Second + 1; s < time.Duration(len(c.samples)) && s*time.Second <= until; s++ {
		c.samples[s].Concurrency = len(c.underway)
	}
}

// count gives the sample of the present second.
func (c *crowd) count() *Sample { return &c.samples[c.now/time.Second] }

// think lets a client be idle before its next request.
func (c *crowd) think(i int) {
	c.clients[i] = client{}
	c.agenda.add(c.now+time.Duration(c.rnd.ExpFloat64()*float64(c.Think)), func() { c.request(i) })
}

// request sends a request, and lets the client leave when nobody answers.
func (c *crowd) request(i int) {
	call := &call{client: i, resend: firstResend}
	c.count().Attempts++
	c.agenda.add(c.now+c.Timeout, func() { c.leave(call) })
	c.arrive(call)
}

// A connection that finds the backlog full is tried again by the network, with
// delays that double, as TCP does it: for minutes, whether its client still
// waits or not. It is these that meet a service which gets up.
const (
	firstResend = 200 * time.Millisecond
	lastResend  = 100 * time.Second
)

// arrive brings a call to the service, or to its backlog while it is stopped.
func (c *crowd) arrive(call *call) {
	switch {
	case !c.stopped:
		call.taken = c.now
		c.underway = append(c.underway, call)
	case len(c.waiting) < c.Backlog:
		c.waiting = append(c.waiting, call)
	case call.resend < lastResend:
		c.agenda.add(c.now+call.resend, func() { c.arrive(call) })
		call.resend *= 2
	}
}

// resume lets the service take up all that waits for it at once.
func (c *crowd) resume() {
	c.stopped = false
	for _, call := range c.waiting {
		c.arrive(call)
	}
	c.waiting = nil
}

// latency is how long a request takes with so many under way. The service looks
// again all the time, so it is faster when others have ended.
func (c *crowd) latency(concurrency int) time.Duration {
	over := float64(max(0, concurrency-c.Limit)) / c.Scale
	return time.Duration(min(float64(c.MinDelay)*math.Pow(c.Factor, over), float64(3*maxSpan)))
}

// nextAnswer tells when the service answers next: it answers in order.
func (c *crowd) nextAnswer() (time.Duration, bool) {
	if c.stopped || len(c.underway) == 0 {
		return 0, false
	}
	return max(c.now, c.underway[0].taken+c.latency(len(c.underway))), true
}

// answer ends the oldest request. It worked for nothing when its client has left.
func (c *crowd) answer() {
	call := c.underway[0]
	c.underway[0] = nil
	c.underway = c.underway[1:]
	call.done = true
	if !call.left {
		c.count().Good++
		c.think(call.client)
	}
}

// leave ends the patience of a client. The service does not notice: the request
// goes on.
func (c *crowd) leave(call *call) {
	if call.done {
		return
	}
	call.left = true
	c.count().Timeouts++
	cl := &c.clients[call.client]
	cl.failures++
	if c.policy.Attempts > 0 && cl.failures >= c.policy.Attempts {
		c.count().GivenUp++
		c.think(call.client)
		return
	}
	cl.delay = engine.NextDelay(c.policy, engine.Repetition{
		Number: cl.failures, Before: cl.delay, Noise: c.rnd.NormFloat64(),
	})
	c.agenda.add(c.now+min(cl.delay, maxSpan*3), func() { c.request(call.client) })
}
