package plant

import (
	"fmt"
	"io"
	"math"
	"time"

	"procaas/engine/simulate"
)

// newChart makes a chart of a length in seconds, with ticks at its quarters.
func newChart(length float64) simulate.Chart {
	c := simulate.Chart{Length: max(seconds(length), time.Second)}
	for i := range 5 {
		c.Ticks = append(c.Ticks, (c.Length * time.Duration(i) / 4).Round(time.Second))
	}
	return c
}

// panelOf makes a panel that all its lines fit into.
func panelOf(title, unit string, least float64, lines [][]simulate.Dot) simulate.Panel {
	top := least
	for _, line := range lines {
		for _, d := range line {
			top = max(top, d.Y)
		}
	}
	return simulate.Panel{Title: title, Unit: unit, Top: math.Ceil(100*top) / 100, Lines: lines}
}

// WriteSVG draws drops, the fullest worker and the Gini index over time, of the first
// run of each policy.
func (c Comparison) WriteSVG(w io.Writer) error {
	var drops, hottest, gini [][]simulate.Dot
	length := 0.0
	var legend []string
	for i, m := range c.Policies {
		var d, h, g []simulate.Dot
		for _, p := range c.Results[i*m.Runs].Samples {
			at := seconds(p.At)
			d, h, g = append(d, simulate.Dot{At: at, Y: 100 * p.Drops}), append(h, simulate.Dot{At: at, Y: 100 * p.Hottest}),
				append(g, simulate.Dot{At: at, Y: p.Gini})
			length = max(length, p.At)
		}
		drops, hottest, gini = append(drops, d), append(hottest, h), append(gini, g)
		legend = append(legend, fmt.Sprintf("%s: %.3f%% dropped, %.0f moves, %.0f to and fro", m.Policy, 100*m.Drops, m.Moves, m.Oscillations))
	}
	chart := newChart(length)
	chart.Legend = legend
	chart.Panels = []simulate.Panel{
		panelOf(c.Scenario+": dropped requests", "%", 1, drops),
		panelOf("utilisation of the fullest worker", "%", 100, hottest),
		panelOf("Gini index of the workers' load", "", 0.1, gini),
	}
	return chart.WriteSVG(w)
}

// WriteSVG draws what is estimated to be dropped, how full the fullest worker would have
// been, and the Gini index over time. Of what is not known, there is no panel.
func (r *Replayed) WriteSVG(w io.Writer) error {
	var drops, hottest, gini [][]simulate.Dot
	chart := newChart(r.To - r.From)
	for _, o := range r.Policies {
		var d, h, g []simulate.Dot
		for _, m := range o.Samples {
			at := seconds(m.After)
			g = append(g, simulate.Dot{At: at, Y: m.Gini})
			if m.Drops != nil && m.Hottest != nil {
				d, h = append(d, simulate.Dot{At: at, Y: 100 * *m.Drops}), append(h, simulate.Dot{At: at, Y: 100 * *m.Hottest})
			}
		}
		drops, hottest, gini = append(drops, d), append(hottest, h), append(gini, g)
		chart.Legend = append(chart.Legend, fmt.Sprintf("%s: %s dropped (estimated), %d moves, %d to and fro", o.Policy, percent(o.Drops, 3),
			o.Moves, o.Oscillations))
	}
	if r.Known {
		chart.Panels = append(chart.Panels,
			panelOf(r.Cluster+": dropped requests, estimated", "%", 1, drops), panelOf("utilisation of the fullest worker, estimated", "%", 100,
				hottest))
	}
	chart.Panels = append(chart.Panels, panelOf("Gini index of the workers' load", "", 0.1, gini))
	return chart.WriteSVG(w)
}
