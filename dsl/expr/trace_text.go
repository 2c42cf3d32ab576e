package expr

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"procaas/dsl/datum"
	"procaas/dsl/render"
)

const (
	maxShown = 120 // runes of one value in a trace
	maxWide  = 100 // cells of an expression with carets
	maxPart  = 80  // runes of a part of a wider one
)

// WriteTrace prints an expression with a line per part: carets below the part, and its value. If the expression
// is too wide, each line has the text of its part instead.
func WriteTrace(w io.Writer, t *Trace, color bool) error {
	p := tracePage{TextWriter: render.TextWriter{Color: color}}
	p.flatten(t.Text)
	p.wide = p.cells[len(p.cells)-1] > maxWide
	p.measure(t, 0)
	if !p.wide {
		fmt.Fprintf(&p, "%s\n", p.text)
	}
	p.write(t, 0)
	_, err := p.WriteTo(w)
	return err
}

// A tracePage is a trace that is being printed.
type tracePage struct {
	render.TextWriter
	text  string // the expression on one line
	cells []int  // the column of each rune of the source, and of the end
	width int    // of the left column
	wide  bool   // print texts instead of carets
}

// flatten puts a text on one line. Each line break with its spaces becomes one space.
func (p *tracePage) flatten(source string) {
	var out strings.Builder
	column, runes := 0, []rune(source)
	for i := 0; i < len(runes); {
		gap := i
		for gap < len(runes) && unicode.IsSpace(runes[gap]) {
			gap++
		}
		if slices.Contains(runes[i:gap], '\n') {
			p.cells = append(p.cells, slices.Repeat([]int{column}, gap-i)...)
			out.WriteByte(' ')
			column, i = column+1, gap
			continue
		}
		p.cells = append(p.cells, column)
		size := render.CellsOf(runes[i], column)
		render.WriteRune(&out, runes[i], size)
		column, i = column+size, i+1
	}
	p.cells = append(p.cells, column)
	p.text = render.Printable(out.String())
}

// left returns the left column of a part: its indentation, and its text or carets.
func (p *tracePage) left(t *Trace, depth int) (indent int, text string) {
	if p.wide {
		line := strings.Join(strings.Fields(t.Text), " ")
		return 2 * depth, render.Printable(Shorten(line, maxPart))
	}
	from, to := p.cells[t.From], p.cells[t.To]
	return from, strings.Repeat("^", max(1, to-from))
}

func (p *tracePage) measure(t *Trace, depth int) {
	indent, text := p.left(t, depth)
	p.width = max(p.width, indent+utf8.RuneCountInString(text))
	for _, part := range shown(t) {
		p.measure(part, depth+1)
	}
}

// write prints parts from left to right, each after the parts that it consists of. With texts instead of
// carets, the order is reversed, which is easier to read.
func (p *tracePage) write(t *Trace, depth int) {
	indent, text := p.left(t, depth)
	value, color := traceValue(t)
	gap := p.width - indent - utf8.RuneCountInString(text) + 2
	line := fmt.Sprintf("%*s%s%*s%s\n", indent, "", p.Paint(render.Blue, text), gap, "", p.Paint(color, value))
	if p.wide {
		p.WriteString(line)
	}
	for _, part := range shown(t) {
		p.write(part, depth+1)
	}
	if !p.wide {
		p.WriteString(line)
	}
}

// shown returns the parts that deserve a line. A part that was not needed has none.
func shown(t *Trace) []*Trace {
	if t.Outcome == TraceNotNeeded {
		return nil
	}
	return t.Parts
}

// traceValue returns the value of a part as text, and its colour.
func traceValue(t *Trace) (text, color string) {
	switch {
	case t.Error != "" && t.Outcome == TraceUnknown:
		return "not known: " + render.Printable(t.Error), render.Yellow
	case t.Error != "":
		return "error: " + render.Printable(t.Error), render.Red
	case t.Outcome == TraceError, t.Outcome == TraceUnknown:
		return "no value", render.Plain
	case t.Times == 0:
		return "not needed", render.Plain
	case len(t.Values) == 0:
		return ellipsis, render.Plain
	case t.Times == 1:
		return ShowValue(t.Values[0]), render.Bold
	}
	const most = 5
	var all []string
	for _, v := range t.Values[:min(most, len(t.Values))] {
		all = append(all, ShowValue(v))
	}
	if t.Times > most {
		all = append(all, fmt.Sprintf("… %d times", t.Times))
	}
	return Shorten(strings.Join(all, ", "), maxShown), render.Bold
}

// ShowValue formats a value as short JSON on one line. A secret shows its name only.
func ShowValue(v any) string {
	if s, ok := v.(datum.Secret); ok {
		return "!secret " + s.Name
	}
	r := allowance{nodes: maxKeptNodes, bytes: maxKeptBytes} // much more than is shown
	kept, _ := r.keep(v)
	data, err := datum.FormatJSON(kept)
	if err != nil {
		return datum.Describe(v)
	}
	return render.Printable(Shorten(string(data), maxShown))
}

// Shorten cuts a text to at most so many characters.
func Shorten(s string, most int) string {
	if runes := []rune(s); len(runes) > most {
		return string(slices.Concat(runes[:most-1], []rune("…")))
	}
	return s
}
