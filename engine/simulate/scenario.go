package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
)

// A Scenario describes a crowd of clients and a service.
type Scenario struct {
	Seed uint64

	Clients int
	// Think is the mean time between an answer and the client's next request, exponentially
	// distributed.
	Think   time.Duration
	Timeout time.Duration // a client leaves after this time

	// A request takes MinDelay while at most Limit are in flight. Beyond that, it takes Factor to
	// the power of (concurrency - Limit) / Scale times as long.
	MinDelay time.Duration
	Limit    int
	Factor   float64
	Scale    float64

	// Backlog is how many connections wait for a stopped service. The network retries those beyond
	// it, even after their client has left.
	Backlog int

	// Abandon makes clients that leave close their socket, so that the network stops connecting for
	// them. Without it, connecting continues in the background, as the dials of Go do.
	Abandon bool

	Fault  Fault
	Before time.Duration // the time until the fault
	Outage time.Duration // how long the fault lasts
	After  time.Duration // how long the service is watched after that
}

// A Fault is what happens to the service.
type Fault string

// These are the faults. A stopped service is silent, as in the article. A refusing one answers at
// once that it is not there, like the host of an ended process. In a brownout each request takes
// twenty times as long. In a spike there are twenty times as many clients, and the service has no
// fault.
const (
	FaultStopped  Fault = "stopped"
	FaultRefused  Fault = "refused"
	FaultBrownout Fault = "brownout"
	FaultSpike    Fault = "spike"
)

// Faults lists the faults.
func Faults() []string {
	return []string{string(FaultStopped), string(FaultRefused), string(FaultBrownout), string(FaultSpike)}
}

const (
	brownout = 20 // times as long
	spike    = 20 // times as many clients
)

// refusal returns how long a refused request takes.
func (s Scenario) refusal() time.Duration { return s.MinDelay / 10 }

// DefaultScenario returns that of the article, with the backlog of its time.
func DefaultScenario() Scenario {
	return Scenario{
		Seed: 1, Clients: 1000, Think: 10 * time.Second, Timeout: 2 * time.Second,
		MinDelay: 100 * time.Millisecond, Limit: 30, Factor: 1.05, Scale: 15, Backlog: 128, Fault: FaultStopped,
		Before: 15 * time.Second, Outage: time.Minute, After: 2 * time.Minute,
	}
}

// These bound the cost of a simulation.
const (
	maxClients = 100_000
	maxSpan    = 24 * time.Hour
	maxLoad    = 200_000_000 // clients times the number of timeouts in the simulated time
)

// Check returns an error for an invalid scenario.
func (s Scenario) Check() error {
	span, clients, shortest := s.Before+s.Outage+s.After, s.Clients, min(s.Timeout, s.Think)
	switch s.Fault {
	case FaultSpike:
		clients *= spike
	case FaultRefused:
		shortest = min(shortest, s.refusal())
	}
	switch {
	case !slices.Contains(Faults(), string(s.Fault)):
		return fmt.Errorf("want a fault of %s, have %q", strings.Join(Faults(), ", "), s.Fault)
	case s.Clients < 1 || s.Clients > maxClients:
		return fmt.Errorf("want 1 to %d clients, have %d", maxClients, s.Clients)
	case s.Think <= 0 || s.Timeout < time.Millisecond || s.MinDelay < time.Millisecond:
		return errors.New("want a think time above 0, a timeout and a min-delay of 1ms or more")
	case s.Limit < 1 || s.Backlog < 0 || s.Factor < 1 || s.Scale <= 0:
		return errors.New("want a concurrency limit of 1 or more, a backlog of 0 or more, a factor of 1 or more, and a scale above 0")
	case s.MinDelay >= s.Timeout:
		return fmt.Errorf("a service that takes %v never answers clients that leave after %v", s.MinDelay, s.Timeout)
	case s.Before < window || s.After < window || s.Outage < 0:
		return fmt.Errorf("want at least %v before and after the outage, to see a difference", window)
	case s.Before > maxSpan || s.Outage > maxSpan || s.After > maxSpan:
		return fmt.Errorf("want at most %v in each part", maxSpan)
	case int64(clients)*int64(span/shortest) > maxLoad:
		return errors.New("too much to simulate: take fewer clients or less time")
	}
	return nil
}

// MarshalJSON writes durations in seconds.
func (s Scenario) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Seed     uint64  `json:"seed"`
		Clients  int     `json:"clients"`
		Think    float64 `json:"think_s"`
		Timeout  float64 `json:"timeout_s"`
		MinDelay float64 `json:"min_delay_s"`
		Limit    int     `json:"concurrency_limit"`
		Factor   float64 `json:"factor"`
		Scale    float64 `json:"scale"`
		Backlog  int     `json:"backlog"`
		Abandon  bool    `json:"abandon"`
		Fault    Fault   `json:"fault"`
		Before   float64 `json:"before_s"`
		Outage   float64 `json:"outage_s"`
		After    float64 `json:"after_s"`
	}{
		s.Seed, s.Clients, s.Think.Seconds(), s.Timeout.Seconds(), s.MinDelay.Seconds(), s.Limit, s.Factor, s.Scale,
		s.Backlog, s.Abandon, s.Fault, s.Before.Seconds(), s.Outage.Seconds(), s.After.Seconds(),
	})
}

// A Policy is a way to retry requests, with its name in reports.
type Policy struct {
	Name  string
	Retry tree.Retry

	// Limited uses an engine with an adaptive limit for the calls, instead of independent clients.
	Limited bool
}

// Policies returns those that are worth comparing: the common one, the one that the article
// recommends, two that spread delays more, and an inbox with a limit.
func Policies() []Policy {
	const low, high = 100 * time.Millisecond, 15 * time.Minute
	with := func(j datum.Jitter) tree.Retry {
		return tree.Retry{MinDelay: low, MaxDelay: high, Factor: 2, Jitter: j}
	}
	return []Policy{
		{Name: "fixed 100ms", Retry: tree.Retry{MinDelay: low, MaxDelay: low, Factor: 1}},
		{Name: "exponential 100ms x2 up to 15m", Retry: with(datum.Jitter{Share: 0.1})},
		{Name: "full jitter 100ms x2 up to 15m", Retry: with(datum.Jitter{Word: datum.FullJitter})},
		{Name: "decorrelated jitter 100ms up to 15m", Retry: with(datum.Jitter{Word: datum.DecorrelatedJitter})},
		{Name: "inbox with an adaptive limit", Retry: with(datum.Jitter{Word: datum.FullJitter}), Limited: true},
	}
}
