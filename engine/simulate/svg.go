package simulate

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"time"
)

// The picture: two panels, one above the other, with a legend below.
const (
	svgWidth    = 900
	svgHeight   = 560
	panelLeft   = 70
	panelWidth  = 810
	panelHeight = 190
	upperTop    = 30
	lowerTop    = 260
	legendTop   = 485
)

// svgColors tell policies apart, for the colour-blind too.
func svgColors() []string {
	return []string{"#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}
}

// WriteSVG draws goodput and concurrency of all policies over time.
func (r Report) WriteSVG(w io.Writer) error {
	p := picture{scenario: r.Scenario}
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`, svgWidth, svgHeight)
	p.printf(`<rect width="%d" height="%d" fill="white"/>`, svgWidth, svgHeight)
	top, peak := 1.0, 10.0
	for _, v := range r.Policies {
		for _, s := range v.Samples {
			top, peak = max(top, float64(s.Good)), max(peak, float64(s.Concurrency))
		}
	}
	decades := math.Ceil(math.Log10(peak))
	linear := func(y float64) float64 { return y / top }
	logarithmic := func(y float64) float64 { return math.Log10(max(1, y)) / decades }
	p.panel(upperTop, "goodput: answers in time, per second")
	p.level(upperTop, linear, top)
	p.panel(lowerTop, "concurrency: requests under way, logarithmic")
	for d := 0.0; d <= decades; d++ {
		p.level(lowerTop, logarithmic, math.Pow(10, d))
	}
	colors := svgColors()
	for i, v := range r.Policies {
		color := colors[i%len(colors)]
		p.line(upperTop, color, v.Samples, func(s Sample) float64 { return linear(float64(s.Good)) })
		p.line(lowerTop, color, v.Samples, func(s Sample) float64 { return logarithmic(float64(s.Concurrency)) })
		x, y := panelLeft+i%2*panelWidth/2, legendTop+i/2*20
		p.printf(`<rect x="%d" y="%d" width="14" height="4" fill="%s"/>`, x, y-4, color)
		p.printf(`<text x="%d" y="%d">%s: %s</text>`, x+20, y, html.EscapeString(v.Policy), v.outcome())
	}
	p.printf(`</svg>`)
	_, err := io.WriteString(w, p.String())
	return err
}

// A picture is SVG in the making.
type picture struct {
	strings.Builder
	scenario Scenario
}

func (p *picture) printf(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// x is where a time stands.
func (p *picture) x(t time.Duration) float64 {
	s := p.scenario
	return panelLeft + panelWidth*float64(t)/float64(s.Before+s.Outage+s.After)
}

// panel draws the frame of a panel, with the outage in grey.
func (p *picture) panel(top int, title string) {
	s := p.scenario
	from, to := p.x(s.Before), p.x(s.Before+s.Outage)
	p.printf(`<text x="%d" y="%d" font-weight="bold">%s</text>`, panelLeft, top-8, title)
	p.printf(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#eeeeee"/>`, from, top, to-from, panelHeight)
	p.printf(`<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#999999"/>`, panelLeft, top, panelWidth, panelHeight)
	for _, t := range []time.Duration{0, s.Before, s.Before + s.Outage, s.Before + s.Outage + s.After} {
		p.printf(`<text x="%.1f" y="%d" text-anchor="middle">%v</text>`, p.x(t), top+panelHeight+15, t)
	}
}

// level draws a horizontal line with its number.
func (p *picture) level(top int, height func(float64) float64, y float64) {
	at := float64(top) + panelHeight*(1-height(y))
	p.printf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#dddddd"/>`, panelLeft, at, panelLeft+panelWidth, at)
	p.printf(`<text x="%d" y="%.1f" text-anchor="end">%.0f</text>`, panelLeft-6, at+4, y)
}

// line draws a number over time; height gives it between 0 and 1.
func (p *picture) line(top int, color string, samples []Sample, height func(Sample) float64) {
	fmt.Fprintf(p, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, color)
	for i, s := range samples {
		fmt.Fprintf(p, "%.1f,%.1f ", p.x(time.Duration(i)*time.Second), float64(top)+panelHeight*(1-height(s)))
	}
	p.printf(`"/>`)
}
