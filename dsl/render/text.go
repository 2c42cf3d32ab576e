package render

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"

	"procaas/dsl/diag"
)

const (
	tabWidth = 4   // cells between two tab stops
	maxCells = 160 // longer source lines are cut around the carets
	maxLines = 6   // of one range; of a longer one, only its start and end are shown
)

// A TextWriter writes findings as text. Each has its source line, with carets below the exact position.
type TextWriter struct {
	bytes.Buffer
	sources map[string][][]rune // lines by file, split when first needed
	files   map[string][]byte
	Color   bool // write colours for a terminal
}

func writeText(w io.Writer, files []diag.File, ds []diag.Diagnostic, color bool) error {
	t := &TextWriter{sources: make(map[string][][]rune), files: make(map[string][]byte, len(files)), Color: color}
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

// summary returns text such as "3 errors, 1 warning in 2 files".
func summary(files int, ds []diag.Diagnostic) string {
	errors, warnings, advice := countSeverities(ds)
	var parts []string
	for _, p := range []struct {
		n    int
		noun string
	}{{errors, "error"}, {warnings, "warning"}, {advice, "advice"}} {
		if p.n > 0 {
			parts = append(parts, diag.Plural(p.n, p.noun))
		}
	}
	if len(parts) == 0 {
		return "no problems in " + diag.Plural(files, "file")
	}
	return strings.Join(parts, ", ") + " in " + diag.Plural(files, "file")
}

// Terminal colours, as compilers use them.
const (
	Red    = "\x1b[1;31m"
	Yellow = "\x1b[1;33m"
	cyan   = "\x1b[1;36m"
	Blue   = "\x1b[1;34m"
	Bold   = "\x1b[1m"
	Plain  = "\x1b[0m"
)

// Paint writes s in a colour if Color is set.
func (t *TextWriter) Paint(color, s string) string {
	if !t.Color {
		return s
	}
	return color + s + Plain
}

func severityColor(s diag.Severity) string {
	switch s {
	case diag.Error:
		return Red
	case diag.Warning:
		return Yellow
	}
	return cyan
}

func (t *TextWriter) diagnostic(d diag.Diagnostic) {
	gutter := t.gutter(d)
	color := severityColor(d.Severity)
	fmt.Fprintf(t, "%s%s\n", t.Paint(color, fmt.Sprintf("%s[%s]", d.Severity, d.Code)), t.Paint(Bold, ": "+Printable(d.Message)))
	t.excerpt(d.Span, gutter, color)
	if d.Hint != "" {
		for i, line := range strings.Split(d.Hint, "\n") {
			lead := "= help: "
			if i > 0 {
				lead = "        "
			}
			fmt.Fprintf(t, "%*s %s%s\n", gutter, "", t.Paint(Blue, lead[:2])+t.Paint(Bold, lead[2:]), Printable(line))
		}
	}
	for _, r := range d.Related {
		fmt.Fprintf(t, "%s: %s\n", t.Paint(cyan, "note"), Printable(r.Message))
		t.excerpt(r.Span, gutter, cyan)
	}
	t.WriteByte('\n')
}

// gutter returns the width of the highest line number of a finding.
func (t *TextWriter) gutter(d diag.Diagnostic) int {
	last := max(d.Start.Line, d.End.Line)
	for _, r := range d.Related {
		last = max(last, r.Start.Line, r.End.Line)
	}
	return len(fmt.Sprint(last))
}

// excerpt writes the source of a span.
func (t *TextWriter) excerpt(at diag.Span, gutter int, color string) {
	if at.Start.Line == 0 {
		if at.File != "" {
			fmt.Fprintf(t, "%*s%s %s\n", gutter, "", t.Paint(Blue, "-->"), Printable(at.File))
		}
		return
	}
	fmt.Fprintf(t, "%*s%s %s\n", gutter, "", t.Paint(Blue, "-->"), Printable(at.String()))
	lines := t.lines(at.File)
	if at.Start.Line > len(lines) {
		return
	}
	bar := t.Paint(Blue, "|")
	fmt.Fprintf(t, "%*s %s\n", gutter, "", bar)
	first, last := at.Start.Line, min(lastLine(at), len(lines))
	for n := first; n <= last; n++ {
		if last-first >= maxLines && n == first+maxLines-2 {
			fmt.Fprintf(t, "%s\n", t.Paint(Blue, strings.Repeat(".", max(3, gutter))))
			n = last
		}
		source, carets := mark(lines[n-1], at, n)
		number := t.Paint(Blue, fmt.Sprintf("%*d", gutter, n))
		fmt.Fprintf(t, "%s\n", strings.TrimRight(number+" "+bar+" "+source, " "))
		if carets != "" {
			indent := len(carets) - len(strings.TrimLeft(carets, " "))
			fmt.Fprintf(t, "%*s %s %s%s\n", gutter, "", bar, carets[:indent], t.Paint(color, carets[indent:]))
		}
	}
}

// lastLine returns the last line that a span covers.
func lastLine(at diag.Span) int {
	if at.End.Line > at.Start.Line && at.End.Column <= 1 {
		return at.End.Line - 1
	}
	return max(at.Start.Line, at.End.Line)
}

// lines returns the lines of a file, which it splits once.
func (t *TextWriter) lines(file string) [][]rune {
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

// mark returns line n as a terminal shows it, and the carets below the covered part. The first line has at
// least one caret.
func mark(line []rune, at diag.Span, n int) (source, carets string) {
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
			size = CellsOf(line[i], cells)
			WriteRune(&text, line[i], size)
		}
		cells += size
		if i < to {
			under.WriteString(strings.Repeat(markOf(i >= from), size))
		}
	}
	text.WriteString(tail)
	return Printable(text.String()), strings.TrimRight(under.String(), " ")
}

// covered returns the part of line n that a span covers.
func covered(line []rune, at diag.Span, n int) (from, to int) {
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
		from++ // later lines are marked from their first character
	}
	return from, to
}

func markOf(marked bool) string {
	if marked {
		return "^"
	}
	return " "
}

// WriteRune writes a rune. It expands tabs to spaces.
func WriteRune(b *strings.Builder, r rune, size int) {
	if r == '\t' {
		b.WriteString(strings.Repeat(" ", size))
		return
	}
	b.WriteRune(r)
}

// CellsOf returns the width of a rune in a column, counted from 0.
func CellsOf(r rune, column int) int {
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
