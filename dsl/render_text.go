package dsl

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

const (
	tabWidth = 4   // cells between two tab stops
	maxCells = 160 // a longer source line is cut around what the carets mark
	maxLines = 6   // of one marked stretch; of a longer one the ends are shown
)

// A textWriter writes findings for people, each with the source line that it
// is about and carets below the exact place.
type textWriter struct {
	bytes.Buffer
	sources map[string][][]rune // lines by the name of the file, split when first needed
	files   map[string][]byte
	color   bool
}

func writeText(w io.Writer, files []File, ds []Diagnostic, color bool) error {
	t := &textWriter{sources: make(map[string][][]rune), files: make(map[string][]byte, len(files)), color: color}
	for _, f := range files {
		t.files[f.Name] = f.Data
	}
	for _, d := range ds {
		t.diagnostic(d)
		if _, err := t.WriteTo(w); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, summary(len(files), ds))
	return err
}

// summary counts: 3 errors, 1 warning in 2 files.
func summary(files int, ds []Diagnostic) string {
	errors, warnings, advice := countSeverities(ds)
	var parts []string
	for _, p := range []struct {
		n    int
		noun string
	}{{errors, "error"}, {warnings, "warning"}, {advice, "advice"}} {
		if p.n > 0 {
			parts = append(parts, plural(p.n, p.noun))
		}
	}
	if len(parts) == 0 {
		return "no problems in " + plural(files, "file")
	}
	return strings.Join(parts, ", ") + " in " + plural(files, "file")
}

func plural(n int, noun string) string {
	if n == 1 || noun == "advice" {
		return fmt.Sprintf("%d %s", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// The colours of a terminal, as compilers use them.
const (
	red    = "\x1b[1;31m"
	yellow = "\x1b[1;33m"
	cyan   = "\x1b[1;36m"
	blue   = "\x1b[1;34m"
	bold   = "\x1b[1m"
	plain  = "\x1b[0m"
)

func (t *textWriter) paint(color, s string) string {
	if !t.color {
		return s
	}
	return color + s + plain
}

func severityColor(s Severity) string {
	switch s {
	case Error:
		return red
	case Warning:
		return yellow
	}
	return cyan
}

func (t *textWriter) diagnostic(d Diagnostic) {
	gutter := t.gutter(d)
	color := severityColor(d.Severity)
	fmt.Fprintf(t, "%s%s\n", t.paint(color, fmt.Sprintf("%s[%s]", d.Severity, d.Code)), t.paint(bold, ": "+printable(d.Message)))
	t.excerpt(d.Span, gutter, color)
	if d.Hint != "" {
		for i, line := range strings.Split(d.Hint, "\n") {
			lead := "= help: "
			if i > 0 {
				lead = "        "
			}
			fmt.Fprintf(t, "%*s %s%s\n", gutter, "", t.paint(blue, lead[:2])+t.paint(bold, lead[2:]), printable(line))
		}
	}
	for _, r := range d.Related {
		fmt.Fprintf(t, "%s: %s\n", t.paint(cyan, "note"), printable(r.Message))
		t.excerpt(r.Span, gutter, cyan)
	}
	t.WriteByte('\n')
}

// gutter is the width of the highest line number that the finding shows.
func (t *textWriter) gutter(d Diagnostic) int {
	last := max(d.Start.Line, d.End.Line)
	for _, r := range d.Related {
		last = max(last, r.Start.Line, r.End.Line)
	}
	return len(fmt.Sprint(last))
}

// excerpt shows the source of a span.
func (t *textWriter) excerpt(at Span, gutter int, color string) {
	if at.Start.Line == 0 {
		if at.File != "" {
			fmt.Fprintf(t, "%*s%s %s\n", gutter, "", t.paint(blue, "-->"), printable(at.File))
		}
		return
	}
	fmt.Fprintf(t, "%*s%s %s\n", gutter, "", t.paint(blue, "-->"), printable(at.String()))
	lines := t.lines(at.File)
	if at.Start.Line > len(lines) {
		return
	}
	bar := t.paint(blue, "|")
	fmt.Fprintf(t, "%*s %s\n", gutter, "", bar)
	first, last := at.Start.Line, min(lastLine(at), len(lines))
	for n := first; n <= last; n++ {
		if last-first >= maxLines && n == first+maxLines-2 {
			fmt.Fprintf(t, "%s\n", t.paint(blue, strings.Repeat(".", max(3, gutter))))
			n = last
		}
		source, carets := mark(lines[n-1], at, n)
		number := t.paint(blue, fmt.Sprintf("%*d", gutter, n))
		fmt.Fprintf(t, "%s\n", strings.TrimRight(number+" "+bar+" "+source, " "))
		if carets != "" {
			indent := len(carets) - len(strings.TrimLeft(carets, " "))
			fmt.Fprintf(t, "%*s %s %s%s\n", gutter, "", bar, carets[:indent], t.paint(color, carets[indent:]))
		}
	}
}

// lastLine is the last line on which a span covers anything.
func lastLine(at Span) int {
	if at.End.Line > at.Start.Line && at.End.Column <= 1 {
		return at.End.Line - 1
	}
	return max(at.Start.Line, at.End.Line)
}

// lines splits a file once.
func (t *textWriter) lines(file string) [][]rune {
	lines, ok := t.sources[file]
	if data, known := t.files[file]; !ok && known {
		text := strings.TrimPrefix(strings.ToValidUTF8(string(data), "\uFFFD"), "\uFEFF")
		text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
		for line := range strings.SplitSeq(text, "\n") {
			lines = append(lines, []rune(line))
		}
		t.sources[file] = lines
	}
	return lines
}

// mark gives the n-th line as a terminal shows it and the carets under what the
// span covers of it. At least one caret marks the first line.
func mark(line []rune, at Span, n int) (source, carets string) {
	from, to := covered(line, at, n)
	head, tail := "", ""
	if len(line) > maxCells {
		low := max(0, min(from-maxCells/4, len(line)-maxCells))
		high := min(len(line), low+maxCells)
		if low > 0 {
			head = "…"
		}
		if high < len(line) {
			tail = "…"
		}
		line, from, to = line[low:high], from-low, min(to-low, high-low+1)
	}
	cells := utf8.RuneCountInString(head)
	var text, under strings.Builder
	text.WriteString(head)
	under.WriteString(strings.Repeat(" ", cells))
	for i := range max(len(line), to) {
		size := 1
		if i < len(line) {
			size = cellsOf(line[i], cells)
			writeRune(&text, line[i], size)
		}
		cells += size
		if i < to {
			under.WriteString(strings.Repeat(markOf(i >= from), size))
		}
	}
	text.WriteString(tail)
	return printable(text.String()), strings.TrimRight(under.String(), " ")
}

// covered is what a span covers of the n-th line.
func covered(line []rune, at Span, n int) (from, to int) {
	to = len(line)
	if n == at.End.Line {
		to = min(at.End.Column-1, len(line))
	} else {
		for to > 0 && unicode.IsSpace(line[to-1]) {
			to--
		}
	}
	if n == at.Start.Line {
		from = min(at.Start.Column-1, len(line))
		return from, max(to, from+1)
	}
	for from < to && unicode.IsSpace(line[from]) {
		from++ // a later line is marked from its text on
	}
	return from, to
}

func markOf(marked bool) string {
	if marked {
		return "^"
	}
	return " "
}

// writeRune writes a tab as the blanks up to its stop.
func writeRune(b *strings.Builder, r rune, size int) {
	if r == '\t' {
		b.WriteString(strings.Repeat(" ", size))
		return
	}
	b.WriteRune(r)
}

// cellsOf is the width of a rune that stands in a column, counted from 0.
func cellsOf(r rune, column int) int {
	switch {
	case r == '\t':
		return tabWidth - column%tabWidth
	case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
		return 1 // shown as a replacement
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
