package judge

import (
	"fmt"
	"math/rand/v2"
)

// A scenario is a cluster and what happens to it. Times are seconds, loads are shares of
// what a worker of mean capacity does in a second. The zero value of a number means that
// there is none of what it counts, unless said otherwise.
type scenario struct {
	Name                string
	Workers, Partitions int
	Step, Duration      float64
	Warmup              float64 // at the beginning, which does not count

	Utilisation     float64 // work asked for, as a share of what the cluster can do
	Zipf, MaxShare  float64 // how unequal partitions are; what the heaviest may be
	CostSpread      float64 // deviation of the logarithm of the work of a request
	CapacitySpread  float64 // workers differ by up to this share from the mean
	CapacityTold    string  // to policies: true, equal (in another unit), zero (unknown) or none
	Map             string  // who may hold a partition: all, rand, ring or zone
	Replicas, Zones int
	Initial         string // lpt lays partitions out by load, anything else by number

	Cold, ColdTime    float64 // work of a request to an empty cache; seconds in which it fills
	ColdBy            string  // time, or served: only what is served fills it
	Handover          float64 // for which a partition that moves is not served
	Fresh, FreshTime  float64 // share of its capacity that a process has at first, and until when
	Queue             float64 // seconds of work that may wait
	RejectCost        float64 // work of a rejection, as a share of the request
	Noise, Common     float64 // deviation from step to step, of each partition and of all together
	Drift, DriftTime  float64 // deviation over the long run, and its half-life
	Diurnal, Period   float64 // amplitude and length of a day
	Bursts            float64 // an hour, of 4 to 25 seconds
	Surges            []surge
	Outages           []outage
	Notice            float64 // by which planned outages are announced
	Slow              []outage
	SlowTo            float64 // share of its capacity that a slow worker has
	LostChecks        float64 // share of the healthchecks that are lost
	Blind             []outage
	BornFrom          int // workers from this one on are born later
	BornAt            float64
	Untold            float64 // share of the weights that nobody tells
	WeightsOfServed   bool    // leave out what was dropped
	WeightsPerSecond  bool    // or else by step
	RequestsPerSecond bool
	Lag               bool    // reports tell of the step before the last
	BusyNoise         float64 // deviation of what workers say of their busy time
}

// A surge makes partitions hot: Count of them, from the one of a rank on.
type surge struct {
	From, For, To float64
	Rank, Count   int
}

// An outage is a time for which something is wrong with a worker.
type outage struct {
	Worker   int
	From, To float64
	Planned  bool
}

// covers reports whether a worker is struck at a time.
func (o outage) covers(w int, at float64) bool { return o.Worker == w && at >= o.From && at < o.To }

func stream(seed, which uint64) *rand.Rand { return rand.New(rand.NewPCG(seed*7919+13, which)) }

func oneOf[T any](r *rand.Rand, xs ...T) T { return xs[r.IntN(len(xs))] }

func between(r *rand.Rand, a, b float64) float64 { return a + (b-a)*r.Float64() }

// kinds are what scenarios are about, in turn.
func kinds() []string {
	return []string{
		"plain", "hot", "monster", "crash", "zone", "release", "releasequiet", "flap", "pingloss", "slow", "half",
		"growth", "diurnal", "flashcrowd", "bursts", "overload", "idle", "hetero", "coldheavy", "tight", "mixed", "seesawload",
	}
}

// draw makes the scenario of a number. The order of the draws is part of it: another one
// makes other scenarios of all numbers.
func draw(number int) scenario {
	r := stream(uint64(number)+1000, 1)
	kind := kinds()[number%len(kinds())]
	s := scenario{Name: fmt.Sprintf("%02d-%s", number, kind), Warmup: 300}
	s.Workers = oneOf(r, 4, 8, 12, 16, 24, 40)
	s.Partitions = s.Workers * min(oneOf(r, 2, 5, 10, 20, 40, 80, 200), 3000/s.Workers)
	s.Step = oneOf(r, 1.0, 2, 2, 2, 5, 5, 10, 10, 30, 60)
	if number < len(kinds()) {
		s.Step = oneOf(r, 1.0, 2, 2, 5)
	}
	s.Duration = max(3000, 100*s.Step)
	s.drawCluster(r)
	s.drawReports(r)
	s.drawLosses(r, kind)
	s.drawLoads(r, kind)
	return s
}

// drawCluster draws what is the same in all kinds.
func (s *scenario) drawCluster(r *rand.Rand) {
	s.Utilisation = between(r, 0.45, 0.8)
	s.Zipf = oneOf(r, 0, 0.4, 0.7, 0.9, 1.1)
	s.MaxShare = oneOf(r, 0.2, 0.4, 0.6)
	s.CapacityTold = oneOf(r, "true", "true", "none", "zero", "equal")
	if r.Float64() < 0.3 {
		s.CapacitySpread = between(r, 0.2, 0.6)
	}
	s.Map = oneOf(r, "all", "rand", "rand", "ring", "zone")
	s.Replicas = min(oneOf(r, 2, 3, 4, 6), s.Workers)
	s.Zones = oneOf(r, 1, 2, 3, 3)
	s.Cold = oneOf(r, 1, 1.5, 3, 3, 5)
	s.ColdTime = oneOf(r, 10.0, 30, 60, 90)
	s.ColdBy = oneOf(r, "time", "served")
	s.Handover = oneOf(r, 0, 0.5, 0.5, 1.5)
	s.Fresh = oneOf(r, 1, 0.6, 0.4)
	s.FreshTime = oneOf(r, 30.0, 120)
	s.Noise = oneOf(r, 0, 0.1, 0.3)
	s.Common = oneOf(r, 0, 0.03)
	s.Drift = oneOf(r, 0, 0.2, 0.4)
	s.DriftTime = oneOf(r, 600.0, 1800)
	s.Queue = oneOf(r, 0, 0, 0.5)
}

// drawReports draws how workers tell what they do.
func (s *scenario) drawReports(r *rand.Rand) {
	s.Untold = oneOf(r, 0, 0, 0, 0.1)
	s.WeightsOfServed = r.Float64() < 0.2
	s.RequestsPerSecond = r.Float64() < 0.4
	s.WeightsPerSecond = s.RequestsPerSecond
	if r.Float64() < 0.15 {
		s.WeightsPerSecond = !s.RequestsPerSecond
	}
	s.Lag = r.Float64() < 0.15
	s.Initial = oneOf(r, "count", "count", "lpt")
	s.CostSpread = oneOf(r, 0, 0.2, 0.4)
	s.BusyNoise = oneOf(r, 0, 0.03)
	s.RejectCost = oneOf(r, 0, 0.05)
}

// drawLosses draws what happens to the workers of some kinds of scenarios.
func (s *scenario) drawLosses(r *rand.Rand, kind string) {
	switch kind {
	case "crash":
		for k := range 1 + r.IntN(3) {
			at := 500 + float64(k)*600
			s.Outages = append(s.Outages, outage{Worker: r.IntN(s.Workers), From: at, To: at + between(r, 60, 600)})
		}
	case "zone":
		s.Zones = 3
		s.Utilisation = between(r, 0.4, 0.6)
		s.Map, s.Replicas = oneOf(r, "all", "zone"), min(max(s.Replicas, 3), s.Workers)
		for w := 1; w < s.Workers; w += 3 {
			s.Outages = append(s.Outages, outage{Worker: w, From: 900, To: 1700})
		}
	case "release", "releasequiet":
		gap, down := between(r, 40, 90), between(r, 10, 40)
		if kind == "release" {
			s.Notice = oneOf(r, 20.0, 40, 60)
		}
		s.Utilisation = between(r, 0.4, 0.65)
		for w := range s.Workers {
			at := 500 + float64(w)*gap
			s.Outages = append(s.Outages, outage{Worker: w, From: at, To: at + down, Planned: true})
		}
	case "flap":
		w := r.IntN(s.Workers)
		period, down := between(r, 40, 150), between(r, 6, 30)
		for at := 500.0; at < s.Duration-500; at += period {
			s.Outages = append(s.Outages, outage{Worker: w, From: at, To: at + down})
		}
	case "pingloss":
		s.LostChecks = oneOf(r, 0.01, 0.03, 0.08)
	case "slow":
		w := r.IntN(s.Workers)
		s.Slow = []outage{{Worker: w, From: 600, To: 600 + between(r, 500, 1500)}, {Worker: (w + 1) % s.Workers, From: 800, To: 1800}}
		s.SlowTo = between(r, 0.3, 0.7)
	case "half":
		for w := 0; w < s.Workers; w += 2 {
			s.Blind = append(s.Blind, outage{Worker: w, From: 700, To: 700 + oneOf(r, 5.0, 20, 60, 200)})
		}
	case "growth":
		s.BornFrom, s.BornAt = max(1, s.Workers*3/4), s.Duration*0.4
		s.Utilisation = between(r, 0.5, 0.75)
		s.Map = oneOf(r, "all", "rand")
		s.Replicas = max(s.Replicas, min(4, s.Workers))
	}
}

// drawLoads draws what is asked of the cluster in the other kinds.
func (s *scenario) drawLoads(r *rand.Rand, kind string) {
	switch kind {
	case "hot":
		for k := range 2 + r.IntN(3) {
			s.Surges = append(s.Surges, surge{
				From: 600 + float64(k)*500, For: between(r, 200, 900), To: between(r, 0.3, 0.7), Rank: r.IntN(min(10, s.Partitions-1)), Count: 1,
			})
		}
	case "monster":
		s.Surges = []surge{{From: 600, For: between(r, 600, 2000), To: between(r, 0.9, 1.5), Count: 1}}
	case "diurnal":
		s.Diurnal, s.Period = between(r, 0.3, 0.5), oneOf(r, 1200.0, 2400)
		s.Utilisation = between(r, 0.5, 0.65)
	case "flashcrowd":
		s.Utilisation = between(r, 0.35, 0.5)
		s.Surges = []surge{{From: 900, For: between(r, 100, 600), To: between(r, 0.1, 0.3), Count: min(s.Partitions/2, s.Workers)}}
	case "bursts":
		s.Bursts = oneOf(r, 200.0, 800)
	case "overload":
		s.Utilisation = between(r, 1.02, 1.3)
	case "idle":
		s.Utilisation = between(r, 0.03, 0.2)
	case "hetero":
		s.CapacitySpread = between(r, 0.4, 0.7)
		s.CapacityTold = oneOf(r, "true", "equal", "none")
	case "coldheavy":
		s.Cold, s.ColdTime = between(r, 5, 9), between(r, 60, 120)
		s.Utilisation = between(r, 0.6, 0.8)
	case "tight":
		s.Map, s.Replicas = oneOf(r, "rand", "ring"), min(2, s.Workers)
		s.Utilisation = between(r, 0.55, 0.8)
	case "mixed":
		s.Drift = 0.4
		s.Surges = []surge{{From: 600, For: 600, To: between(r, 0.4, 0.8), Rank: 1, Count: 1}}
		s.Outages = []outage{{Worker: r.IntN(s.Workers), From: 1500, To: 1700}}
		s.LostChecks = oneOf(r, 0, 0.01)
	case "seesawload":
		n := r.IntN(5) + 3
		period := between(r, 40, 240)
		for k := range n * 3 {
			s.Surges = append(s.Surges, surge{From: 500 + float64(k)*period, For: period / 2, To: between(r, 0.3, 0.6), Rank: k % 2, Count: 1})
		}
	}
}
