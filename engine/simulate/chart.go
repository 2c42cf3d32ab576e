package simulate

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"time"
)

// A Chart draws numbers over time: panels above each other, with a legend below. Line i of each
// panel belongs to entry i of the legend.
type Chart struct {
	Length time.Duration
	Ticks  []time.Duration
	Shaded []Span // in grey
	Panels []Panel
	Legend []string
}

// A Span is a period in a chart.
type Span struct{ From, To time.Duration }

// A Panel is one diagram of a chart.
type Panel struct {
	Title string
	Top   float64 // the highest number, above 0
	Unit  string  // of the numbers on the axis, such as %

	// Logarithmic panels begin at 1.
	Logarithmic bool

	Lines [][]Dot

	// Marks are written below the panel. Without them, the panel has the ticks and shades of the
	// chart.
	Marks []Mark
}

// A Mark is a word at a time.
type Mark struct {
	At   time.Duration
	Text string
}

// A Dot is one number of a line.
type Dot struct {
	At time.Duration
	Y  float64
}

// These are the measures of charts.
const (
	chartWidth  = 900
	panelLeft   = 70
	panelWidth  = 810
	panelHeight = 190
	panelTop    = 30  // of the first one
	panelStep   = 230 // from one to the next
	legendGap   = 25
	legendLine  = 20
)

// chartColors distinguish lines, also for color-blind people.
func chartColors() []string {
	return []string{"#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}
}

// WriteSVG draws the chart.
func (c Chart) WriteSVG(w io.Writer) error {
	p := picture{length: c.Length}
	legend := len(c.Panels)*panelStep + legendGap
	height := legend + max(3, (len(c.Legend)+1)/2)*legendLine + 15
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`, chartWidth, height)
	p.printf(`<rect width="%d" height="%d" fill="white"/>`, chartWidth, height)
	colors := chartColors()
	for i, panel := range c.Panels {
		top := panelTop + i*panelStep
		p.frame(top, &c, &panel)
		p.levels(top, &panel)
		for k, line := range panel.Lines {
			p.line(top, colors[k%len(colors)], line, panel.height)
		}
	}
	for i, text := range c.Legend {
		x, y := panelLeft+i%2*panelWidth/2, legend+i/2*legendLine
		p.printf(`<rect x="%d" y="%d" width="14" height="4" fill="%s"/>`, x, y-4, colors[i%len(colors)])
		p.printf(`<text x="%d" y="%d">%s</text>`, x+20, y, html.EscapeString(text))
	}
	p.printf(`</svg>`)
	_, err := io.WriteString(w, p.String())
	return err
}

// height returns the height of a number, between 0 and 1.
func (p *Panel) height(y float64) float64 {
	if p.Logarithmic {
		return math.Log10(max(1, y)) / p.decades()
	}
	return y / p.Top
}

func (p *Panel) decades() float64 { return max(1, math.Ceil(math.Log10(p.Top))) }

// A picture is an SVG that is being written.
type picture struct {
	strings.Builder
	length time.Duration
}

func (p *picture) printf(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// x returns the horizontal position of a time.
func (p *picture) x(t time.Duration) float64 {
	return panelLeft + panelWidth*float64(t)/float64(p.length)
}

// frame draws the frame of a panel.
func (p *picture) frame(top int, c *Chart, panel *Panel) {
	marks, shaded := panel.Marks, c.Shaded
	if marks != nil {
		shaded = nil
	} else {
		for _, t := range c.Ticks {
			marks = append(marks, Mark{t, fmt.Sprint(t)})
		}
	}
	p.printf(`<text x="%d" y="%d" font-weight="bold">%s</text>`, panelLeft, top-8, html.EscapeString(panel.Title))
	for _, s := range shaded {
		from, to := p.x(s.From), p.x(s.To)
		p.printf(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#eeeeee"/>`, from, top, to-from, panelHeight)
	}
	p.printf(`<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#999999"/>`, panelLeft, top, panelWidth, panelHeight)
	for _, m := range marks {
		p.printf(`<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, p.x(m.At), top+panelHeight+15, html.EscapeString(m.Text))
	}
}

// levels draws horizontal lines with their numbers.
func (p *picture) levels(top int, panel *Panel) {
	ys := []float64{panel.Top}
	if panel.Logarithmic {
		ys = nil
		for d := 0.0; d <= panel.decades(); d++ {
			ys = append(ys, math.Pow(10, d))
		}
	}
	for _, y := range ys {
		at := float64(top) + panelHeight*(1-panel.height(y))
		p.printf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#dddddd"/>`, panelLeft, at, panelLeft+panelWidth, at)
		text := fmt.Sprintf("%.0f", y)
		if y < 10 && y != math.Trunc(y) {
			text = fmt.Sprintf("%.2g", y)
		}
		p.printf(`<text x="%d" y="%.1f" text-anchor="end">%s</text>`, panelLeft-6, at+4, text+panel.Unit)
	}
}

// line draws numbers over time.
func (p *picture) line(top int, color string, dots []Dot, height func(float64) float64) {
	fmt.Fprintf(p, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, color)
	for _, d := range dots {
		fmt.Fprintf(p, "%.1f,%.1f ", p.x(d.At), float64(top)+panelHeight*(1-height(d.Y)))
	}
	p.printf(`"/>`)
}
