package simulate

import (
	"time"

	"procaas/dsl/tree"
	"procaas/engine/guard"
)

// A Sample has the numbers of one second.
type Sample struct {
	Concurrency int `json:"concurrency"` // most requests in flight at a time, including those of clients that have left
	Attempts    int `json:"attempts"`
	Good        int `json:"good"` // answers whose client was still waiting
	Timeouts    int `json:"timeouts"`
	Refused     int `json:"refused"`
	Repeated    int `json:"repeated"` // requests that have failed and are not answered yet, at the end of the second
	Late        int `json:"late"`     // attempts from the time of the fault that reached the service after it
	GivenUp     int `json:"given_up"` // requests whose client has used up its attempts
}

// Backoff runs clients with a policy through a scenario, and returns the numbers of each second.
func Backoff(s Scenario, policy tree.Retry) []Sample {
	c := crowd{world: newWorld(s), policy: policy, clients: make([]client, s.Clients)}
	for i := range c.clients {
		c.think(i)
	}
	if s.Fault == FaultSpike && s.Outage > 0 {
		c.clients = append(c.clients, make([]client, (spike-1)*s.Clients)...)
		c.agenda.add(s.Before, func() {
			for i := s.Clients; i < len(c.clients); i++ {
				c.think(i)
			}
		})
	}
	c.run()
	return c.samples
}

// A crowd is many independent clients.
type crowd struct {
	*world
	policy  tree.Retry
	clients []client
}

// A client waits, calls, and if nobody answers pauses and calls again.
type client struct {
	failures int
	delay    time.Duration // before the last retry
}

// think makes a client wait before its next request.
func (c *crowd) think(i int) {
	if c.clients[i].failures > 0 {
		c.repeated--
	}
	c.clients[i] = client{}
	c.after(c.chance(c.Think), func() {
		if i < c.Clients || c.faulty { // the clients of a spike end with it
			c.request(i)
		}
	})
}

// request sends a request. If nobody answers, the client pauses and sends it again.
func (c *crowd) request(i int) {
	answered := func(time.Duration) { c.think(i) }
	c.send(answered, func() {
		cl := &c.clients[i]
		cl.failures++
		if cl.failures == 1 {
			c.repeated++
		}
		if c.policy.Attempts > 0 && cl.failures >= c.policy.Attempts {
			c.count().GivenUp++
			c.think(i)
			return
		}
		cl.delay = c.nextDelay(c.policy, cl.failures, cl.delay)
		c.after(cl.delay, func() { c.request(i) })
	})
}

// limited uses an engine instead of the clients. The same number of events comes, regardless of their
// outcome. They wait in an inbox until the adaptive limit of the service admits them, and the
// policy retries them.
func limited(s Scenario, policy tree.Retry) []Sample {
	i := inbox{world: newWorld(s), policy: policy, limit: guard.NewGradient(0)}
	i.limit.Bound(0, s.Timeout/10, 0)
	i.after(i.gap(), i.arrive)
	i.run()
	return i.samples
}

// An inbox has waiting events, oldest first.
type inbox struct {
	*world
	policy  tree.Retry
	limit   *guard.Gradient
	waiting []*client // their turn has not come
	looks   bool      // a look is on the agenda
}

// time returns the current time of the scenario.
func (i *inbox) time() time.Time { return begin().Add(i.now) }

// gap returns the time between two events.
func (i *inbox) gap() time.Duration {
	clients := i.Clients
	if i.faulty && i.Fault == FaultSpike {
		clients *= spike
	}
	return i.chance(i.Think / time.Duration(clients))
}

// arrive adds an event.
func (i *inbox) arrive() {
	i.waiting = append(i.waiting, &client{})
	i.after(i.gap(), i.arrive)
	i.start()
}

// start starts as many events as the limit allows.
func (i *inbox) start() {
	for len(i.waiting) > 0 && i.limit.Start(i.time()) {
		event := i.waiting[0]
		i.waiting = i.waiting[1:]
		i.send(func(took time.Duration) {
			if event.failures > 0 {
				i.repeated--
			}
			i.end(true, took)
		}, func() {
			event.failures++
			if event.failures == 1 {
				i.repeated++
			}
			event.delay = i.nextDelay(i.policy, event.failures, event.delay)
			i.after(event.delay, func() {
				i.waiting = append(i.waiting, event)
				i.start()
			})
			i.end(false, i.Timeout)
		})
	}
	if pause := i.limit.Next().Sub(i.time()); pause > 0 && len(i.waiting) > 0 && !i.looks {
		i.looks = true
		i.after(pause, func() {
			i.looks = false
			i.start()
		})
	}
}

// end tells the limit about the end of a call, so that another may start.
func (i *inbox) end(good bool, took time.Duration) {
	i.limit.End("", good, took, i.time())
	i.start()
}
