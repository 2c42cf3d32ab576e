package simulate

import (
	"encoding/json"
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
}

// Compare runs each policy through the scenario.
func Compare(s Scenario, policies []Policy) Report {
	r := Report{Scenario: s}
	for _, p := range policies {
		r.Policies = append(r.Policies, Judge(s, p))
	}
	return r
}

// WriteJSON writes a report for programs.
func (r Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteText writes a report for people: a table, and a chart for each policy.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	s := r.Scenario
	fmt.Fprintf(&b, "%d clients ask every %v or so and leave after %v. The service takes %v, and with more than\n",
		s.Clients, s.Think, s.Timeout, s.MinDelay)
	fmt.Fprintf(&b, "%d requests under way %g times as long for each %g more. It stops for %v; %d connections\n",
		s.Limit, s.Factor, s.Scale, s.Outage, s.Backlog)
	fmt.Fprintf(&b, "wait for it. Seed %d.\n\n", s.Seed)

	wide, top, peak := 0, 0.0, 0.0
	for _, v := range r.Policies {
		wide = max(wide, len(v.Policy))
		top, peak = max(top, 1.5*v.GoodputBefore), max(peak, float64(v.PeakConcurrency))
	}
	fmt.Fprintf(&b, "%-*s   goodput per second     attempts/s  timeouts/s         peak\n", wide, "")
	fmt.Fprintf(&b, "%-*s  before during  after   during  peak       after  concurrency\n", wide, "policy")
	for _, v := range r.Policies {
		fmt.Fprintf(&b, "%-*s  %6.0f %6.0f %6.0f   %6.0f %5d  %10.0f  %11d  %s\n", wide, v.Policy, v.GoodputBefore,
			v.GoodputDuring, v.Goodput, v.AttemptsDuring, v.PeakAttempts, v.TimeoutsAfter, v.PeakConcurrency, v.outcome())
	}
	for _, v := range r.Policies {
		fmt.Fprintf(&b, "\n%s: %s\n", v.Policy, v.outcome())
		v.chart(&b, s, top, math.Log1p(peak))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// outcome says in words whether the service recovered.
func (v Verdict) outcome() string {
	switch {
	case v.TimeToRecover == nil:
		return "did not recover"
	case *v.TimeToRecover == 0:
		return "recovered at once"
	}
	return fmt.Sprintf("recovered after %gs", *v.TimeToRecover)
}

// columns is how wide charts are.
const columns = 65

// chart draws goodput and concurrency over time, with the same scale for all
// policies. Goodput ends somewhat above what is normal: what was held back may
// come much faster. Concurrency is logarithmic: it goes from ten to tens of
// thousands.
func (v Verdict) chart(b *strings.Builder, s Scenario, top, peak float64) {
	goodput := bins(v.Samples, func(s Sample) float64 { return float64(s.Good) }, average)
	concurrency := bins(v.Samples, func(s Sample) float64 { return math.Log1p(float64(s.Concurrency)) }, highest)
	fmt.Fprintf(b, "  goodput      %s\n", bars(goodput, top))
	fmt.Fprintf(b, "  concurrency  %s  logarithmic\n", bars(concurrency, peak))
	place := func(t time.Duration) int { return int(columns * t / (s.Before + s.Outage + s.After)) }
	axis := []rune(strings.Repeat(" ", columns+10))
	copy(axis[place(s.Before):], []rune("↑ stops"))
	copy(axis[place(s.Before+s.Outage):], []rune("↑ is back"))
	fmt.Fprintf(b, "               %s\n", strings.TrimRight(string(axis), " "))
}

// bins gives one number for each column of a chart.
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

// bars draws numbers from 0 to top as a line of bars; nothing for nothing.
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
