package canary

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// These are the kinds of comparisons.
const (
	Failures = "failures" // of runs: those that have failed or wait for an operator
	Errors   = "errors"   // of first attempts of a handler
	Latency  = "latency"  // of runs
	Calls    = "calls"    // of a run, to handlers that both versions have
)

// Kinds lists them.
func Kinds() []string { return []string{Failures, Errors, Latency, Calls} }

const (
	// falseAlarms bounds the probability that an equally good version is rolled back at one share.
	falseAlarms = 0.002

	// muchWorse is how many times as bad the new version must be to be rolled back. A certain
	// difference may be too small to matter. muchSlower is the same for latencies. It is less, because
	// a part of the time of a run is the same with both versions.
	muchWorse, muchSlower = 1.5, 1.3

	firstLook = 10   // runs of the new version
	nextLook  = 1.25 // times as many until the next look
	fewest    = 20   // of each version, for quantiles; and of calls of a new handler

	leastLatency = 10 * time.Millisecond // the new version must be slower by at least this
	bucketWidth  = 1.25
	smallest     = -40 // the bucket of 0
)

// quantiles are the quantiles that are compared.
func quantiles() []float64 { return []float64{0.5, 0.9} }

// TestsOf returns the number of comparisons.
func TestsOf(pipelines, handlers int) int { return pipelines*(1+2*len(quantiles())) + handlers }

// judge returns why the new version is worse, or empty if there is no proof.
func (s *State) judge() string {
	for _, key := range slices.Sorted(maps.Keys(s.Seen)) {
		kind, name, _ := strings.Cut(key, " ")
		p := s.Seen[key]
		n := p.New.n()
		if n < max(p.Look, firstLook) || slices.Contains(s.Ignore, kind) {
			continue
		}
		// The looks share the budget for false alarms: 1/2 + 1/6 + 1/12 + … = 1.
		look := math.Floor(math.Log(float64(n)/firstLook) / math.Log(nextLook))
		p.Look = int(math.Ceil(firstLook * math.Pow(nextLook, look+1)))
		chance := falseAlarms / float64(max(s.Tests, 1)) / ((look + 1) * (look + 2))
		if why := p.worse(kind, name, s.IsApart(name), chance); why != "" {
			return why
		}
	}
	return ""
}

// unjudged returns why the next share must wait: nothing has been compared of something that the old
// version does. It is empty if nothing is missing.
func (s *State) unjudged(out []string) string {
	for _, path := range out {
		if !s.IsApart(path) && !slices.Contains(s.Ignore, Errors) {
			return fmt.Sprintf("handler %s is out of the flow by its fallback, so nothing of it is compared", path)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Seen)) {
		kind, name, _ := strings.Cut(key, " ")
		p := s.Seen[key]
		old, now := p.Old.n(), p.New.n()
		compared := (kind == Errors || kind == Failures) && !slices.Contains(s.Ignore, kind) && !s.IsApart(name)
		if !compared || old == 0 || now >= firstLook {
			continue
		}
		expected := float64(old) * s.Percent / (100 - s.Percent)
		if expected >= firstLook || p.New.Bad > 0 || slices.Contains(s.Changed, name) {
			return fmt.Sprintf("%s of %s are compared from %d on, and there are %d with the new version, %d with the old one",
				kind, name, firstLook, now, old)
		}
	}
	return ""
}

// n returns the number of counted runs or calls.
func (s *Side) n() int {
	n := s.Good + s.Bad
	for _, m := range s.Buckets {
		n += m
	}
	return n
}

// worse returns why the new version is worse, with this probability of an error.
func (p *Pair) worse(kind, name string, apart bool, chance float64) string {
	switch kind {
	case Failures, Errors:
		if apart || p.Old.n() == 0 { // must be certainly worse than a handler of which every second call fails
			n := p.New.n()
			if n < fewest || 2*p.New.Bad <= n || tail(p.New.Bad, p.New.Bad+n/2, n, 2*n) >= chance {
				return ""
			}
			why := "does not have it"
			if !apart {
				why = "has none at the same time"
			}
			return fmt.Sprintf("%s of %s: %d of %d failed; the old version %s", kind, name, p.New.Bad, n, why)
		}
		if p.exceeds(p.Old.Bad, p.New.Bad, muchWorse, chance) {
			return fmt.Sprintf("%s of %s: %d of %d, at the same time %d of %d on the old version", kind, name,
				p.New.Bad, p.New.n(), p.Old.Bad, p.Old.n())
		}
	case Latency, Calls:
		return p.longer(kind, name, chance)
	}
	return ""
}

// exceeds reports whether the share of the new version is so many times that of the old one, and
// chance cannot explain it.
func (p *Pair) exceeds(old, now int, times, chance float64) bool {
	n, m := p.Old.n(), p.New.n()
	if n == 0 || float64(now)*float64(n) < times*float64(old)*float64(m) {
		return false
	}
	return tail(now, old+now, m, n+m) < chance
}

// longer compares numbers of runs: how many of each version are above a quantile of both versions
// together.
func (p *Pair) longer(kind, name string, chance float64) string {
	if p.Old.n() < fewest || p.New.n() < fewest {
		return ""
	}
	both := Side{Buckets: maps.Clone(p.Old.Buckets)}
	for b, n := range p.New.Buckets {
		both.Buckets[b] += n
	}
	times := muchWorse
	if kind == Latency {
		times = muchSlower
	}
	for _, q := range quantiles() {
		limit, _ := both.quantile(q)
		old, now := p.Old.valueAt(kind, q), p.New.valueAt(kind, q)
		if old == 0 || now < times*old || kind == Latency && now-old < float64(leastLatency.Milliseconds()) {
			continue
		}
		if p.exceeds(p.Old.above(limit), p.New.above(limit), 1, chance) {
			about, unit := "", ""
			if kind == Latency {
				about, unit = "about ", " ms"
			}
			return fmt.Sprintf("%s of %s: %.0f %% of %d runs have at most %s%.3g%s, at the same time %.3g%s on the old version", kind, name,
				100*q, p.New.n(), about, now, unit, old, unit)
		}
	}
	return ""
}

// quantile returns the bucket that a share of the numbers does not exceed, and how much of the bucket
// belongs to the share.
func (s *Side) quantile(q float64) (bucket int, part float64) {
	want, sum := q*float64(s.n()), 0
	for _, b := range slices.Sorted(maps.Keys(s.Buckets)) {
		n := s.Buckets[b]
		sum += n
		if float64(sum) >= want {
			return b, 1 - (float64(sum)-want)/float64(n)
		}
	}
	return 0, 0
}

// valueAt returns the number that a share of the numbers does not exceed. In a bucket of latencies,
// it takes them for evenly spread: the width of a bucket is too much to compare two versions.
func (s *Side) valueAt(kind string, q float64) float64 {
	switch bucket, part := s.quantile(q); {
	case kind == Calls:
		return float64(bucket)
	case bucket <= smallest:
		return 0
	default:
		return math.Pow(bucketWidth, float64(bucket)+part-0.5)
	}
}

// above counts the numbers in greater buckets.
func (s *Side) above(bucket int) (n int) {
	for b, m := range s.Buckets {
		if b > bucket {
			n += m
		}
	}
	return n
}

// bucketOf returns the bucket of a latency in milliseconds, by its logarithm, or the smallest
// bucket for 0.
func bucketOf(v float64) int {
	if v <= 0 {
		return smallest
	}
	return max(smallest+1, int(math.Round(math.Log(v)/math.Log(bucketWidth))))
}

// callsBucket returns the bucket of a number of calls: the number itself up to 99, and its first two digits above.
func callsBucket(calls int) int {
	unit := 1
	for calls/unit > 99 {
		unit *= 10
	}
	return calls / unit * unit
}

// tail returns the probability that at least hits of the bad ones are among the chosen, if the
// chosen are random. It is exact: the hypergeometric distribution.
func tail(hits, bad, chosen, all int) float64 {
	sum := 0.0
	for k := hits; k <= min(bad, chosen); k++ {
		if chosen-k > all-bad {
			continue
		}
		term := math.Exp(choose(bad, k) + choose(all-bad, chosen-k) - choose(all, chosen))
		sum += term
		if term < sum*1e-9 {
			break
		}
	}
	return math.Min(sum, 1)
}

// choose returns the logarithm of n over k.
func choose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}
