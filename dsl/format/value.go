package format

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"procaas/dsl/source"
	"procaas/dsl/syntax"

	"gopkg.in/yaml.v3"
)

// An entryText is the new text of one entry.
type entryText struct {
	*formatter
	text  string
	shift int      // how far the line has moved to the right
	depth int      // number of open brackets
	expr  bool     // the tag !$ was just written
	below []string // a new block, made of text from the line
	after int      // the line after an existing block
}

// rest formats what follows the dashes of an entry, up to the line on which the next one may begin.
func (f *formatter) rest(text string, shift int) {
	e := &entryText{formatter: f, text: text, shift: shift}
	for !f.failed && e.more() {
		before := e.Pos()
		e.part()
		if e.after > 0 {
			return
		}
		// Otherwise the walk and the parser disagree about where a value begins.
		e.failed = e.failed || e.Pos() == before
	}
}

// more ends a line. It reports whether the entry continues below.
func (e *entryText) more() bool {
	if e.Rune() == source.EOF {
		e.failed = e.failed || e.depth > 0
		e.flush()
		return false
	}
	if e.Rune() != '\n' {
		return true
	}
	e.flush()
	e.nextLine()
	if e.depth == 0 {
		return false
	}
	for e.Rune() == ' ' || e.Rune() == '\t' {
		e.Next()
	}
	if e.Rune() == '\n' {
		e.text = ""
	} else {
		e.text = strings.Repeat(" ", max(0, e.Column+e.shift))
	}
	return true
}

// flush writes the line and the block below it.
func (e *entryText) flush() {
	e.out.line(strings.TrimRight(e.text, " \t"))
	for _, line := range e.below {
		e.out.line(line)
	}
	e.text, e.below = "", nil
}

// part formats the next token of an entry.
func (e *entryText) part() {
	if n := e.scalars[e.Pos()]; n != nil && n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
		e.scalar(n)
		e.expr = false
		return
	}
	r := e.Rune()
	switch {
	case r == ' ' || r == '\t':
		e.blanks()
	case r == '#':
		e.text += e.restOfLine()
		e.Column = len(e.Cursor.Lines[e.Line])
	case r == '{' || r == '[':
		e.depth++
		e.take()
		e.skip()
	case (r == '}' || r == ']') && e.depth > 0:
		e.depth--
		e.closeUp()
		e.take()
	case r == ',' && e.depth > 0:
		e.closeUp()
		e.take()
		e.gap()
	case r == ':':
		e.closeUp()
		e.take()
		e.gap()
	case r == '!' || r == '&' || r == '*':
		e.property()
	case (r == '|' || r == '>') && e.depth == 0:
		e.blockScalar()
	default:
		e.failed = true // nothing else is outside scalars
	}
}

func (e *entryText) take() {
	e.text += string(e.Rune())
	e.Next()
}

// skip skips spaces.
func (e *entryText) skip() {
	for e.Rune() == ' ' || e.Rune() == '\t' {
		e.Next()
	}
	if e.Rune() == '#' {
		e.text += " "
	}
}

// closeUp removes spaces before a comma, a colon or a bracket, unless they indent.
func (e *entryText) closeUp() {
	if text := strings.TrimRight(e.text, " "); text != "" && !strings.HasSuffix(text, "-") && !e.swallows(text) {
		e.text = text
	}
}

// swallows reports whether the text ends in a tag, or in an alias or anchor before a colon. These would absorb
// the following text.
func (e *entryText) swallows(text string) bool {
	word := text[strings.LastIndexAny(text, " [{,")+1:]
	return strings.HasPrefix(word, "!") || e.Rune() == ':' && (strings.HasPrefix(word, "*") || strings.HasPrefix(word, "&"))
}

// gap writes one space where several may be, if something follows on the line.
func (e *entryText) gap() {
	blank := source.IsBlank(e.Rune())
	for e.Rune() == ' ' || e.Rune() == '\t' {
		e.Next()
	}
	switch r := e.Rune(); {
	case r == '\n' || r == source.EOF:
	case r == '#':
		e.comment()
	case blank || e.depth > 0 && e.text[len(e.text)-1] == ',':
		e.text += " "
	}
}

// blanks reduces several spaces to one, except before a comment.
func (e *entryText) blanks() {
	for e.Rune() == ' ' || e.Rune() == '\t' {
		e.Next()
	}
	switch r := e.Rune(); {
	case r == '\n' || r == source.EOF:
	case r == '#':
		e.comment()
	case !strings.HasSuffix(e.text, " "):
		e.text += " "
	}
}

// comment moves to the column of a trailing comment: the old one, moved as far as the line has moved. So
// comments stay aligned.
func (e *entryText) comment() {
	if strings.TrimSpace(e.text) == "" {
		return // a comment on its own line
	}
	text := strings.TrimRight(e.text, " ")
	width := utf8.RuneCountInString(text)
	gap := e.Column + e.shift - width
	if len(e.below) > 0 {
		gap = 1
	}
	e.text = text + strings.Repeat(" ", max(1, gap))
}

// property writes a tag, an anchor or an alias.
func (e *entryText) property() {
	begin := e.Column
	for r := e.Rune(); r != source.EOF && !source.IsBlank(r) && (e.depth == 0 || !strings.ContainsRune(",[]{}", r)); r = e.Rune() {
		e.Next()
	}
	word := string(e.Cursor.Lines[e.Line][begin:e.Column])
	e.text += word
	e.expr = word == "!$" || e.expr && word[0] == '&'
}

// scalar writes a scalar that is not a block. It makes a block of an expression that is too long for its line.
func (e *entryText) scalar(n *yaml.Node) {
	end := e.NodeSpan(n).End
	last, column := end.Line-1, end.Column-1
	if last < e.Line || last >= len(e.Cursor.Lines) || column > len(e.Cursor.Lines[last]) {
		e.failed = true
		return
	}
	begin := e.Cursor
	if last == e.Line {
		raw := string(e.Cursor.Lines[e.Line][e.Column:column])
		e.Column = column
		if e.expr && e.depth > 0 && !source.IsQuoted(n) && strings.ContainsAny(raw, "[]") {
			raw = syntax.InDoubleQuotes(raw) // other YAML parsers end it at the bracket
		}
		wide := utf8.RuneCountInString(e.text)+utf8.RuneCountInString(raw) > formatWidth
		if !wide || !e.asBlock(n) {
			e.text += raw
		}
		return
	}
	e.Line, e.Column = last, column
	if !e.asBlock(n) {
		e.Line, e.Column = begin.Line, begin.Column
		e.longScalar(n, last, column)
	}
}

// longScalar writes a scalar of several lines.
func (e *entryText) longScalar(n *yaml.Node, last, column int) {
	escaped := n.Style&yaml.DoubleQuotedStyle != 0
	for e.Line < last {
		text := string(e.Cursor.Lines[e.Line][e.Column:])
		if !escaped {
			text = strings.TrimRight(text, " \t")
		}
		e.out.lines = append(e.out.lines, e.text+text) // empty lines count here
		e.nextLine()
		for (e.Rune() == ' ' || e.Rune() == '\t') && (e.Line < last || e.Column < column) {
			e.Next()
		}
		e.text = ""
		if e.Rune() != '\n' {
			e.text = strings.Repeat(" ", e.indent())
		}
	}
	e.text += string(e.Cursor.Lines[last][e.Column:column])
	e.Column = column
}

// asBlock makes a scalar a block. It reports whether the scalar is an expression that could be formatted.
func (e *entryText) asBlock(n *yaml.Node) bool {
	if !e.expr || e.depth > 0 || !source.IsQuoted(n) && strings.HasPrefix(strings.TrimLeft(string(e.Cursor.Lines[e.Line][e.Column:]), " \t"),
		"#") {
		return false
	}
	text := strings.TrimSpace(n.Value)
	lines, ok := layExpr(text, formatWidth-e.indent())
	if !ok {
		return false
	}
	e.text += "|"
	e.setBelow(lines)
	return true
}

func (e *entryText) setBelow(lines []string) {
	indent := strings.Repeat(" ", e.indent())
	for _, line := range lines {
		if line != "" {
			line = indent + line
		}
		e.below = append(e.below, line)
	}
	e.block = e.indent() - 2
}

// blockMark splits the header of a block into style, indentation, chomping and comment.
var blockMark = regexp.MustCompile(`^([|>])([-+]?)([1-9]?)([-+]?)[ \t]*(#.*)?$`)

// blockScalar writes a block. Its content moves with its entry.
func (e *entryText) blockScalar() {
	begin := e.Column
	header := string(e.Cursor.Lines[e.Line][begin:])
	m := blockMark.FindStringSubmatch(strings.TrimRight(header, " \t"))
	if m == nil {
		e.failed = true
		return
	}
	content, keep := e.blockLines(m)
	expr := e.expr
	e.expr = false
	if expr && m[3] == "" {
		if lines, ok := e.layBlock(content); ok {
			content = lines
			m[1] = "|"
			m[2] = ""
			m[4] = ""
			keep = false
		}
	}
	e.text += m[1] + m[2] + m[3] + m[4]
	if m[5] != "" {
		e.Column = len(e.Cursor.Lines[e.Line]) - len([]rune(m[5]))
		e.comment()
		e.text += e.restOfLine()
	}
	e.out.line(e.text)
	e.text = ""
	e.block = e.indent() - 2
	e.writeBlock(content, m[3], keep)
}

// writeBlock writes the lines of a block and moves after it.
func (e *entryText) writeBlock(content []string, explicit string, keep bool) {
	indent := e.indent()
	if explicit != "" {
		indent = max(0, indent-2) + int(explicit[0]-'0')
		if len(e.levels) == 0 {
			indent = int(explicit[0] - '0')
		}
	}
	for _, line := range content {
		if line != "" {
			line = strings.Repeat(" ", indent) + line
		}
		e.out.lines = append(e.out.lines, line) // empty lines count here
	}
	e.Line, e.Column = e.after, 0
	e.out.keep = keep
	e.out.open = e.Line >= len(e.Cursor.Lines) && len(e.Cursor.Lines[len(e.Cursor.Lines)-1]) > 0 && len(content) > 0
}

// blockLines returns the content of a block without its indentation, and moves after it. With +, trailing empty
// lines are part of it.
func (e *entryText) blockLines(m []string) (content []string, keep bool) {
	lines := e.Cursor.Lines
	parent := -1
	if len(e.levels) > 0 {
		parent = e.levels[len(e.levels)-1].old
	}
	indent := -1
	if m[3] != "" {
		indent = max(parent, 0) + int(m[3][0]-'0')
	}
	keep = m[2] == "+" || m[4] == "+"
	at := e.Line + 1
	last := at
	for ; at < len(lines); at++ {
		text := string(lines[at])
		own := len(text) - len(strings.TrimLeft(text, " "))
		if own == len(text) && (indent < 0 || own <= indent) {
			continue
		}
		if indent < 0 {
			if own <= parent {
				break
			}
			indent = own
		}
		if own < indent {
			break
		}
		last = at + 1
	}
	if keep {
		last = at
		if at == len(lines) && len(lines[at-1]) == 0 {
			last-- // the text after the last line break is not a line
		}
	}
	for _, line := range lines[e.Line+1 : max(last, e.Line+1)] {
		text := string(line)
		content = append(content, text[min(len(text), max(indent, 0)):])
	}
	e.after = last
	return content, keep
}

// layBlock formats the content of a block with an expression, if it is folded or its only line is too long.
func (e *entryText) layBlock(content []string) ([]string, bool) {
	text := strings.Join(content, "\n")
	if strings.Contains(text, "`") || strings.TrimSpace(text) == "" {
		return nil, false
	}
	trimmed := make([]string, 0, len(content))
	for _, line := range content {
		line = strings.TrimRight(line, " \t")
		if line != "" {
			trimmed = append(trimmed, line)
		}
	}
	width := formatWidth - e.indent()
	if len(trimmed) == 1 && utf8.RuneCountInString(trimmed[0]) > width {
		return layExpr(strings.TrimSpace(trimmed[0]), width)
	}
	return trimmed, true
}
