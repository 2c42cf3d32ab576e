// Package plant is a cluster of workers in virtual time, to judge policies of the
// balancer by: how much they drop, how often they move, whether they oscillate.
//
// A worker has a capacity. Beyond it, it drops the same share of the requests of each
// of its partitions. A partition that has moved is cold: its requests are more work
// until its cache is full, which takes the longer the more of them are dropped. So
// moves have a price, and an overloaded cluster can keep itself overloaded.
package plant

import (
	"embed"
	"fmt"
	"reflect"

	"procaas/dsl/decode"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
)

//go:embed scenario.go
var files embed.FS

// A Scenario is what a cluster goes through. Times are seconds.
type Scenario struct {
	// Version is the version of the format.
	Version int `yaml:"version" required:"true" min:"1" max:"1"`

	// Name names the scenario in reports.
	Name string `yaml:"name" required:"true"`

	// About says what happens, for people.
	About string `yaml:"about"`

	// Expect says what a good policy makes of it, for people.
	Expect string `yaml:"expect"`

	// Seed is where chance begins; each further run takes the next one.
	Seed int `yaml:"seed" default:"1"`

	// Duration is how long the cluster is watched.
	Duration float64 `yaml:"duration_s" required:"true" min:"1" max:"1e6"`

	// Step is the time between two reports of the workers.
	Step float64 `yaml:"step_s" default:"2" min:"0.1" max:"60"`

	// Warmup is the time at the beginning that does not count.
	Warmup float64 `yaml:"warmup_s" default:"0" min:"0"`

	// Cluster is the workers.
	Cluster *Cluster `yaml:"cluster" required:"true"`

	// Partitions are what they serve.
	Partitions *Partitions `yaml:"partitions" required:"true"`

	// Load is how the requests for partitions vary.
	Load *Load `yaml:"load"`

	// Plant is what moves, restarts and rejections cost.
	Plant *Physics `yaml:"plant"`

	// Events are what happens to the cluster.
	Events []*Event `yaml:"events"`
}

// A Cluster is workers.
type Cluster struct {
	// Workers is how many there are.
	Workers int `yaml:"workers" required:"true" min:"1" max:"2000"`

	// Capacity is the work that each can do in a second; a request is about 1.
	Capacity float64 `yaml:"capacity" default:"1000" min:"1" max:"1e9"`

	// Capacities are the least and the most, where workers are unequal.
	Capacities []float64 `yaml:"capacities"`

	// Zones is how many zones the workers stand in, one after the other.
	Zones int `yaml:"zones" default:"3" min:"1"`

	// Hide tells policies that all workers have the same capacity.
	Hide bool `yaml:"hide_capacity"`
}

// Partitions are what workers serve.
type Partitions struct {
	// Count is how many there are.
	Count int `yaml:"count" required:"true" min:"1" max:"100000"`

	// Util is the share of the capacity of all workers that they need.
	Util float64 `yaml:"util" default:"0.6" min:"0" max:"10"`

	// Zipf is the exponent by which they are unequal; 0 makes them equal.
	Zipf float64 `yaml:"zipf_s" default:"0.8" min:"0" max:"4"`

	// MaxShare bounds each, as a share of the capacity of a worker.
	MaxShare float64 `yaml:"max_share" default:"0.25" min:"0.001" max:"100"`

	// CostSigma is how much the work of a request varies between them: the deviation
	// of its logarithm.
	CostSigma float64 `yaml:"cost_sigma" default:"0.2" min:"0" max:"3"`

	// Map is which workers may hold a partition: chosen at random, neighbours on a
	// ring, one or more in each zone, or all of them.
	Map string `yaml:"map" default:"random" enum:"random,ring,zone,all"`

	// Replicas is how many workers may hold each.
	Replicas int `yaml:"replicas" default:"6" min:"1"`

	// Initial is how they lie at the beginning: equal in number, or in load.
	Initial string `yaml:"initial" default:"count" enum:"count,lpt"`
}

// A Load is how the requests for partitions vary.
type Load struct {
	// Noise is the deviation of each partition from step to step, as a share.
	Noise float64 `yaml:"noise_cv" default:"0.1" min:"0" max:"3"`

	// DriftSigma is how far partitions wander from their usual load: the deviation
	// of its logarithm.
	DriftSigma float64 `yaml:"drift_sigma" default:"0" min:"0" max:"3"`

	// DriftHalf is in what time half of such a deviation is gone.
	DriftHalf float64 `yaml:"drift_half_s" default:"1800" min:"1"`

	// DiurnalPeriod is the length of a day; 0 means that there is none.
	DiurnalPeriod float64 `yaml:"diurnal_period_s" default:"0" min:"0"`

	// DiurnalLow is the load at night, as a share of the usual one.
	DiurnalLow float64 `yaml:"diurnal_low" default:"1" min:"0" max:"10"`

	// DiurnalHigh is that of the day.
	DiurnalHigh float64 `yaml:"diurnal_high" default:"1" min:"0" max:"10"`

	// BurstsPerHour is how many short bursts there are.
	BurstsPerHour float64 `yaml:"bursts_per_hour" default:"0" min:"0" max:"1e6"`

	// BurstShare is how large they are, as a share of the capacity of a worker.
	BurstShare float64 `yaml:"burst_share" default:"0.4" min:"0" max:"100"`

	// BurstMin is how long they last at least.
	BurstMin float64 `yaml:"burst_min_s" default:"4" min:"0"`

	// BurstMax is how long they last at most.
	BurstMax float64 `yaml:"burst_max_s" default:"20" min:"0"`

	// Weekend is the load of the last two of seven days, as a share of that of the others.
	Weekend float64 `yaml:"weekend" default:"1" min:"0" max:"10"`

	// MinuteSigma is how much each partition varies from minute to minute: the deviation
	// of the logarithm of its load.
	MinuteSigma float64 `yaml:"minute_sigma" default:"0" min:"0" max:"3"`

	// TimerShare is the share of the partitions whose requests come by the clock: half of
	// them in the first minute of each 5, 10, 15, 30 or 60 minutes.
	TimerShare float64 `yaml:"timer_share" default:"0" min:"0" max:"1"`

	// StormsPerHour is how many bursts there are that hit several partitions at once.
	StormsPerHour float64 `yaml:"storms_per_hour" default:"0" min:"0" max:"1e5"`

	// StormWidth is how many partitions a storm hits on the average.
	StormWidth float64 `yaml:"storm_width" default:"4" min:"1" max:"1000"`

	// StormShare is what the least storm adds to each of them, as a share of the capacity of
	// a worker. Greater ones are the rarer the greater they are, up to ten times that.
	StormShare float64 `yaml:"storm_share" default:"0.05" min:"0" max:"10"`

	// StormTail is the exponent by which great and long storms get rare; a small one makes a
	// heavy tail.
	StormTail float64 `yaml:"storm_tail" default:"1.3" min:"0.5" max:"10"`

	// StormMin is how long the shortest storm lasts; the longest lasts thirty times that.
	StormMin float64 `yaml:"storm_min_s" default:"60" min:"1"`
}

// Physics is what moves, restarts and rejections cost.
type Physics struct {
	// ColdMult is how much more work a request is while nothing is cached.
	ColdMult float64 `yaml:"cold_mult" default:"3" min:"1" max:"100"`

	// ColdTau is in what time a cache fills.
	ColdTau float64 `yaml:"cold_tau_s" default:"60" min:"0.1"`

	// Handoff is for how long a partition that moves is not served.
	Handoff float64 `yaml:"handoff_s" default:"0.5" min:"0" max:"60"`

	// Fresh is the share of its capacity that a process has when it starts.
	Fresh float64 `yaml:"fresh_capacity" default:"0.6" min:"0.01" max:"1"`

	// FreshRamp is in what time it has all.
	FreshRamp float64 `yaml:"fresh_ramp_s" default:"120" min:"0"`

	// Reject is the work of rejecting a request, as a share of serving it.
	Reject float64 `yaml:"reject_cost" default:"0.05" min:"0" max:"0.9"`
}

// An Event is something that happens to the cluster.
type Event struct {
	Span diag.Span `yaml:"-"`

	// At is when.
	At float64 `yaml:"at_s" required:"true" min:"0"`

	// Kind is what: partitions get much load (spike), all get more or less (step), half
	// of them and the other half in turn (seesaw); workers die (crash), a zone does
	// (zone_down), all are restarted one after the other (restart_all); workers are slow
	// (slow), healthchecks get lost (ping_loss), nobody balances (balancer_down), a
	// partition kills its workers (poison).
	Kind string `yaml:"kind" required:"true" enum:"spike,step,seesaw,crash,zone_down,restart_all,slow,ping_loss,balancer_down,poison"`

	// For is how long it lasts; 0 means to the end.
	For float64 `yaml:"for_s" default:"0" min:"0"`

	// Rank is which partition, by load; 0 is the heaviest.
	Rank int `yaml:"rank" default:"0" min:"0"`

	// Worker is which worker.
	Worker int `yaml:"worker" default:"0" min:"0"`

	// Zone is which zone.
	Zone int `yaml:"zone" default:"0" min:"0"`

	// Count is how many partitions or workers, from that one on.
	Count int `yaml:"count" default:"1" min:"1"`

	// To is the load of a spike, as a share of the capacity of a worker.
	To float64 `yaml:"to" default:"0.5" min:"0" max:"100"`

	// Factor is by how much load or capacity changes.
	Factor float64 `yaml:"factor" default:"0.5" min:"0" max:"100"`

	// Ramp is how long a spike grows, or how long a poisoned worker lives.
	Ramp float64 `yaml:"ramp_s" default:"5" min:"0"`

	// Period repeats a spike, a crash or a seesaw; 0 means once.
	Period float64 `yaml:"period_s" default:"0" min:"0"`

	// Down is how long a restarted worker is away.
	Down float64 `yaml:"down_s" default:"20" min:"0"`

	// Gap is the time between two restarts.
	Gap float64 `yaml:"gap_s" default:"30" min:"0.1"`

	// Notice is how long before its end a worker says that it drains.
	Notice float64 `yaml:"notice_s" default:"0" min:"0"`

	// Prob is the share of healthchecks that get lost.
	Prob float64 `yaml:"prob" default:"0.05" min:"0" max:"1"`
}

// mostSteps bounds what a simulation may cost: workers and partitions times steps.
const mostSteps = 5e9

// Parse reads a scenario. It is nil exactly when one of the findings is an error.
func Parse(f diag.File) (*Scenario, []diag.Diagnostic) {
	var s Scenario
	found := decode.File(f, spec.Of(reflect.TypeFor[Scenario](), spec.Read(files)), &s, nil)
	if diag.HasErrors(found) {
		return nil, found
	}
	if s.Load == nil {
		s.Load = defaults[Load]()
	}
	if s.Plant == nil {
		s.Plant = defaults[Physics]()
	}
	r := new(diag.Reporter)
	for _, d := range found {
		r.Report(d)
	}
	at := diag.Span{File: f.Name, Start: diag.Pos{Line: 1, Column: 1}, End: diag.Pos{Line: 1, Column: 1}}
	if err := s.check(); err != nil {
		r.Errorf(at, rules.Body, "", "scenario %s: %v", s.Name, err)
	}
	found = r.Diagnostics()
	if diag.HasErrors(found) {
		return nil, found
	}
	return &s, found
}

// defaults returns what a mapping is that nobody wrote.
func defaults[T any]() *T {
	into := new(T)
	decode.File(diag.File{Data: []byte("{}")}, spec.Of(reflect.TypeFor[T](), spec.Read(files)), into, nil)
	return into
}

// check says what the tags cannot.
func (s *Scenario) check() error {
	c, p := s.Cluster, s.Partitions
	switch {
	case s.Warmup >= s.Duration:
		return fmt.Errorf("warmup_s: want less than duration_s, which is %v, have %v", s.Duration, s.Warmup)
	case len(c.Capacities) != 0 && (len(c.Capacities) != 2 || c.Capacities[0] <= 0 || c.Capacities[1] < c.Capacities[0]):
		return fmt.Errorf("capacities: want the least and the most, have %v", c.Capacities)
	case p.Replicas > c.Workers:
		return fmt.Errorf("replicas: want %d workers at most, have %d", c.Workers, p.Replicas)
	case s.Duration/s.Step*float64(c.Workers+p.Count) > mostSteps:
		return fmt.Errorf("%v steps of %d workers and %d partitions are too many to simulate", s.Duration/s.Step, c.Workers, p.Count)
	}
	for _, e := range s.Events {
		switch {
		case (e.Kind == "spike" || e.Kind == "poison") && e.Rank+e.Count > p.Count:
			return fmt.Errorf("%s at %v: want a rank below %d, have %d and %d more", e.Kind, e.At, p.Count, e.Rank, e.Count-1)
		case (e.Kind == "crash" || e.Kind == "slow") && e.Worker+e.Count > c.Workers:
			return fmt.Errorf("%s at %v: want a worker below %d, have %d and %d more", e.Kind, e.At, c.Workers, e.Worker, e.Count-1)
		case e.Kind == "zone_down" && e.Zone >= c.Zones:
			return fmt.Errorf("zone_down at %v: want a zone below %d, have %d", e.At, c.Zones, e.Zone)
		}
	}
	return nil
}
