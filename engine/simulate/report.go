package simulate

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// A Report compares policies in one scenario.
type Report struct {
	Scenario Scenario  `json:"scenario"`
	Policies []Verdict `json:"policies"`

	delays [][]time.Duration // of each policy, before each retry
}

// Compare runs each policy through the scenario, with a number of seeds.
func Compare(s Scenario, policies []Policy, seeds int) Report {
	r := Report{Scenario: s}
	for _, p := range policies {
		r.add(JudgeAll(s, p, seeds), delaysOf(s, p.Retry))
	}
	return r
}

func (r *Report) add(v Verdict, delays []time.Duration) {
	r.Policies, r.delays = append(r.Policies, v), append(r.delays, delays)
}

// WriteText writes a report for people: a table, and a chart for each policy.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	s := r.Scenario
	fmt.Fprintf(&b, "%d clients ask every %v or so and leave after %v. The service takes %v, and with more than\n",
		s.Clients, s.Think, s.Timeout, s.MinDelay)
	fmt.Fprintf(&b, "%d requests under way %g times as long for each %g more. %s\n", s.Limit, s.Factor, s.Scale, s.tellFault())
	fmt.Fprintf(&b, "Seed %d.\n\n", s.Seed)

	wide, top, peak := 0, 0.0, 0.0
	for _, v := range r.Policies {
		wide = max(wide, len(v.Policy))
		top, peak = max(top, 1.5*v.GoodputBefore), max(peak, float64(v.PeakConcurrency))
	}
	fmt.Fprintf(&b, "%-*s  gives   goodput per second     attempts/s  timeouts/s         peak\n", wide, "")
	fmt.Fprintf(&b, "%-*s     up  before during  after   during  peak       after  concurrency\n", wide, "policy")
	for _, v := range r.Policies {
		fmt.Fprintf(&b, "%-*s  %5s  %6.0f %6.0f %6.0f   %6.0f %5d  %10.0f  %11d  %s\n", wide, v.Policy, v.givesUp(), v.GoodputBefore,
			v.GoodputDuring, v.Goodput, v.AttemptsDuring, v.PeakAttempts, v.TimeoutsAfter, v.PeakConcurrency, v.outcome())
	}
	fmt.Fprintf(&b, "\nOf the attempts made during the fault, these reached the service after it, most of them for nobody:\n")
	for _, v := range r.Policies {
		fmt.Fprintf(&b, "%-*s  %d of %d\n", wide, v.Policy, v.Late, v.Failed)
	}
	for _, v := range r.Policies {
		fmt.Fprintf(&b, "\n%s: %s\n", v.Policy, v.outcome())
		v.chart(&b, s, top, math.Log1p(peak))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// outcome says whether the service recovered.
func (v Verdict) outcome() string {
	switch {
	case v.Runs > 1 && !v.Recovered:
		return fmt.Sprintf("recovered in %d of %d runs", v.Recovers, v.Runs)
	case v.Runs > 1:
		return fmt.Sprintf("recovered in %d of %d runs, after %gs at most", v.Recovers, v.Runs, *v.TimeToRecover)
	case v.TimeToRecover == nil:
		return "did not recover"
	case *v.TimeToRecover == 0:
		return "recovered at once"
	}
	return fmt.Sprintf("recovered after %gs", *v.TimeToRecover)
}

// tellFault describes the fault.
func (s Scenario) tellFault() string {
	switch s.Fault {
	case FaultRefused:
		return fmt.Sprintf("It refuses connections for %v.", s.Outage)
	case FaultBrownout:
		return fmt.Sprintf("For %v it takes %d times as long.", s.Outage, brownout)
	case FaultSpike:
		return fmt.Sprintf("For %v there are %d times as many clients.", s.Outage, spike)
	}
	then := "the network tries the others again, for clients that have left, too"
	if s.Abandon {
		then = "the network tries the others again, until their clients leave"
	}
	return fmt.Sprintf("It stops for %v; %d connections\nwait for it, and %s.", s.Outage, s.Backlog, then)
}

// begins and ends are the names of the fault's start and end in charts.
func (s Scenario) begins() string {
	if s.Fault == FaultStopped {
		return "stops"
	}
	return string(s.Fault)
}

func (s Scenario) ends() string {
	if s.Fault == FaultStopped || s.Fault == FaultRefused {
		return "is back"
	}
	return "is over"
}

// givesUp says after how many attempts clients give up.
func (v Verdict) givesUp() string {
	if v.Attempts == 0 {
		return "never"
	}
	return fmt.Sprint(v.Attempts)
}

// columns is the width of charts.
const columns = 65

// chart draws goodput and concurrency over time, with the same scale for all policies. The goodput
// scale ends somewhat above the normal value, because a backlog may arrive much faster. Concurrency
// is logarithmic, from ten to tens of thousands.
func (v Verdict) chart(b *strings.Builder, s Scenario, top, peak float64) {
	goodput := bins(v.Samples, func(s Sample) float64 { return float64(s.Good) }, average)
	concurrency := bins(v.Samples, func(s Sample) float64 { return math.Log1p(float64(s.Concurrency)) }, highest)
	fmt.Fprintf(b, "  goodput      %s\n", bars(goodput, top))
	fmt.Fprintf(b, "  concurrency  %s  logarithmic\n", bars(concurrency, peak))
	place := func(t time.Duration) int { return int(columns * t / (s.Before + s.Outage + s.After)) }
	axis := []rune(strings.Repeat(" ", columns+10))
	copy(axis[place(s.Before):], []rune("↑ "+s.begins()))
	copy(axis[place(s.Before+s.Outage):], []rune("↑ "+s.ends()))
	fmt.Fprintf(b, "               %s\n", strings.TrimRight(string(axis), " "))
}

// bins returns one number per column of a chart.
func bins[T any](samples []T, of func(T) float64, join func([]float64) float64) []float64 {
	out := make([]float64, columns)
	for i := range out {
		from := i * len(samples) / columns
		to := max(from+1, (i+1)*len(samples)/columns)
		var values []float64
		for _, s := range samples[from:min(to, len(samples))] {
			values = append(values, of(s))
		}
		out[i] = join(values)
	}
	return out
}

func average(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(1, len(values)))
}

func highest(values []float64) float64 {
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	return most
}

// bars draws numbers from 0 to top as a line of bars. 0 is blank.
func bars(values []float64, top float64) string {
	marks := []rune("▁▂▃▄▅▆▇█")
	var line strings.Builder
	for _, v := range values {
		if v <= 0 {
			line.WriteByte(' ')
			continue
		}
		line.WriteRune(marks[min(len(marks)-1, int(v/top*float64(len(marks))))])
	}
	return strings.TrimRight(line.String(), " ")
}
