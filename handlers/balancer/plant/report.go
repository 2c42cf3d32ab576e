package plant

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"procaas/handlers/balancer"
)

// A Report compares policies in scenarios.
type Report struct {
	Scenarios []Comparison `json:"scenarios"`
}

// A Comparison has the results of one scenario.
type Comparison struct {
	Scenario string   `json:"scenario"`
	About    string   `json:"about"`
	Results  []Result `json:"results"`  // of each policy, with each seed
	Policies []Mean   `json:"policies"` // over all seeds
}

// A Mean has the mean results of a scenario with a policy over all seeds.
type Mean struct {
	Policy       string  `json:"policy"`
	Runs         int     `json:"runs"`
	Drops        float64 `json:"drop_fraction"`
	Excess       float64 `json:"excess_drop_fraction"` // in addition to what no assignment could have served
	Moves        float64 `json:"moves"`
	Voluntary    float64 `json:"voluntary_moves"`
	Oscillations float64 `json:"oscillations"`
	Worst        float64 `json:"worst_utilisation"`
	MeanHottest  float64 `json:"mean_hottest_utilisation"`
	Recovery     float64 `json:"worst_recovery_s"`
	Invalid      int     `json:"invalid_moves"`
}

// Compare runs each policy through a scenario, with a number of seeds.
func Compare(s *Scenario, policies []string, params balancer.Params, seeds int) (Comparison, error) {
	c := Comparison{Scenario: s.Name, About: s.About}
	for _, p := range policies {
		m := Mean{Policy: p}
		for seed := range seeds {
			r, err := Run(s, p, params, uint64(seed))
			if err != nil {
				return c, err
			}
			m.add(r)
			c.Results = append(c.Results, r)
		}
		c.Policies = append(c.Policies, m)
	}
	return c, nil
}

// add adds one run to the mean.
func (m *Mean) add(r Result) {
	m.Runs++
	for _, f := range []struct {
		mean *float64
		x    float64
	}{
		{&m.Drops, r.Drops},
		{&m.Excess, r.Excess()},
		{&m.Moves, float64(r.Moves)},
		{&m.Voluntary, float64(r.Voluntary)},
		{&m.Oscillations, float64(r.Oscillations)},
		{&m.MeanHottest, r.MeanHottest},
	} {
		*f.mean += (f.x - *f.mean) / float64(m.Runs)
	}
	m.Worst, m.Recovery = max(m.Worst, r.Worst), max(m.Recovery, r.Recovery)
	m.Invalid += r.Invalid
}

// Strip removes the data of single half minutes.
func (r Report) Strip() {
	for _, c := range r.Scenarios {
		for i := range c.Results {
			c.Results[i].Samples = nil
		}
	}
}

// WriteText writes a report for people.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	for i, c := range r.Scenarios {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s: %s\n", c.Scenario, c.About)
		fmt.Fprintf(&b, "policy    dropped  avoidable    moves  of free will  to and fro  worst load  hottest  recovery\n")
		for _, m := range c.Policies {
			fmt.Fprintf(&b, "%-6s %9.3f%% %9.3f%% %8.1f %13.1f %11.1f %10.0f%% %7.0f%% %8.0fs\n", m.Policy, 100*m.Drops, 100*m.Excess,
				m.Moves, m.Voluntary, m.Oscillations, 100*m.Worst, 100*m.MeanHottest, m.Recovery)
		}
		c.chart(&b)
	}
	if len(r.Scenarios) > 1 {
		r.compare(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// columns is the width of charts.
const columns = 72

// chart draws the drops of the first run of each policy over time.
func (c Comparison) chart(b *strings.Builder) {
	top := 0.0
	for _, r := range c.Results {
		for _, p := range r.Samples {
			top = max(top, p.Drops)
		}
	}
	fmt.Fprintf(b, "drops over time, up to %.1f%%\n", 100*top)
	for i, m := range c.Policies {
		var drops []float64
		for _, p := range c.Results[i*m.Runs].Samples {
			drops = append(drops, p.Drops)
		}
		fmt.Fprintf(b, "%-6s %s\n", m.Policy, bars(drops, top))
	}
}

// bars draws numbers from 0 to top. A column shows the highest of its numbers.
func bars(samples []float64, top float64) string {
	const levels = " ▁▂▃▄▅▆▇█"
	var b strings.Builder
	for x := range min(columns, len(samples)) {
		from, to := x*len(samples)/columns, (x+1)*len(samples)/columns
		if len(samples) < columns {
			from, to = x, x+1
		}
		high, level := slices.Max(samples[from:to]), 0
		if high > 0 {
			level = 1 + int(7*math.Sqrt(high/top)) // makes small ones visible
		}
		b.WriteRune([]rune(levels)[level])
	}
	return b.String()
}

// compare writes the geometric means over all scenarios, as ratios to v4 if it is among the
// policies, or else to the first one.
func (r Report) compare(b *strings.Builder) {
	const least = 1e-4 // smaller drops are all equal
	policies := r.Scenarios[0].Policies
	base := 0
	for i, m := range policies {
		if m.Policy == "v4" {
			base = i
		}
	}
	fmt.Fprintf(b, "\nover all %d scenarios, beside %s\npolicy  avoidable drops   moves\n", len(r.Scenarios), policies[base].Policy)
	for i, m := range policies {
		drops, moves := 0.0, 0.0
		for _, c := range r.Scenarios {
			drops += math.Log((c.Policies[i].Excess + least) / (c.Policies[base].Excess + least))
			moves += math.Log((c.Policies[i].Moves + 1) / (c.Policies[base].Moves + 1))
		}
		n := float64(len(r.Scenarios))
		fmt.Fprintf(b, "%-6s %16.2f %7.2f\n", m.Policy, math.Exp(drops/n), math.Exp(moves/n))
	}
}
