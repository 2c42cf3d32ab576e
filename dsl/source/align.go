package source

import (
	"gopkg.in/yaml.v3"

	"procaas/dsl/diag"
)

// Align returns the position of every rune of a scalar's value, and of its end. It walks through the value and
// the text together, because YAML folds lines, drops indentation and decodes escapes. White space that YAML
// creates gets the position of white space in the text. If the walk fails, all runes get the position of the
// scalar.
func (s *Source) Align(n *yaml.Node) []diag.Pos {
	c := &Cursor{Lines: s.Lines, Line: n.Line - 1, Column: n.Column - 1}
	c.SkipProperties()
	value := []rune(n.Value)
	start := c.Pos()
	var at []diag.Pos
	var ok bool
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 && len(value) == 0:
		return []diag.Pos{start}
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		c.Line, c.Column = c.Line+1, 0 // past the header
		at, ok = c.walk(value, false)
	case n.Style&yaml.SingleQuotedStyle != 0:
		c.Next()
		at, ok = c.walk(value, true)
	case n.Style&yaml.DoubleQuotedStyle != 0:
		c.Next()
		at, ok = c.unquote(len(value))
	case len(value) == 0:
		// A missing value is at the end of its key, not at the next token.
		return []diag.Pos{{Line: n.Line, Column: n.Column}}
	default:
		at, ok = c.walk(value, false)
	}
	if ok {
		return at
	}
	at = make([]diag.Pos, len(value)+1)
	for i := range at {
		at[i] = start
	}
	return at
}

// A Cursor is a position in the text, counted from 0.
type Cursor struct {
	Lines        [][]rune
	Line, Column int
}

// EOF is the rune after the last line.
const EOF rune = -1

// Pos returns the position of the cursor, counted from 1.
func (c *Cursor) Pos() diag.Pos { return diag.Pos{Line: c.Line + 1, Column: c.Column + 1} }

// Rune returns the character at the cursor, or EOF.
func (c *Cursor) Rune() rune {
	switch {
	case c.Line >= len(c.Lines):
		return EOF
	case c.Column >= len(c.Lines[c.Line]):
		return '\n'
	}
	return c.Lines[c.Line][c.Column]
}

// Next moves the cursor to the next character.
func (c *Cursor) Next() {
	if c.Line < len(c.Lines) && c.Column < len(c.Lines[c.Line]) {
		c.Column++
		return
	}
	c.Line, c.Column = c.Line+1, 0
}

// IsBlank reports whether a rune is white space of YAML.
func IsBlank(r rune) bool { return r == ' ' || r == '\t' || r == '\n' }

// blankBehind reports whether white space follows the current rune.
func (c *Cursor) blankBehind() bool {
	line := c.Lines[c.Line]
	return c.Column+1 >= len(line) || IsBlank(line[c.Column+1])
}

func (c *Cursor) skipBlanks() {
	for IsBlank(c.Rune()) {
		c.Next()
	}
}

// SkipProperties moves past anchor, tag and comments to the scalar itself.
func (c *Cursor) SkipProperties() {
	for c.Rune() == '&' || c.Rune() == '!' {
		c.skipProperty()
	}
}

func (c *Cursor) skipProperty() {
	for r := c.Rune(); r != EOF && !IsBlank(r); r = c.Rune() {
		c.Next()
	}
	c.skipBlanks()
	for c.Rune() == '#' {
		c.Line, c.Column = c.Line+1, 0
		c.skipBlanks()
	}
}

// plainly returns the range of a scalar whose text equals its value on one line, as in most cases.
func (s *Source) plainly(n *yaml.Node) (at diag.Span, ok bool) {
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 || n.Value == "" {
		return at, false
	}
	c := Cursor{Lines: s.Lines, Line: n.Line - 1, Column: n.Column - 1}
	c.SkipProperties()
	start := c.Pos()
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
	var quote rune
	if quoted {
		quote = c.Rune()
		c.Column++
	}
	for _, r := range n.Value {
		if r == '\n' || c.Rune() != r || quoted && (r == quote || r == '\\') {
			return at, false
		}
		c.Column++
	}
	if quoted {
		if c.Rune() != quote {
			return at, false
		}
		c.Column++
	}
	return s.at(start, c.Pos()), true
}

// walk aligns a value that has the runes of the text in order, except for white space. single means that the
// text doubles single quotes.
func (c *Cursor) walk(value []rune, single bool) ([]diag.Pos, bool) {
	at := make([]diag.Pos, 0, len(value)+1)
	for i := 0; i < len(value); {
		if value[i] == ' ' && i+1 < len(value) && !IsBlank(value[i+1]) && c.Rune() == ' ' {
			if pos := c.Pos(); !c.blankBehind() {
				at = append(at, pos)
				c.Next()
				i++
				continue
			}
		}
		if IsBlank(value[i]) {
			n := i
			for n < len(value) && IsBlank(value[n]) {
				n++
			}
			at = append(at, spread(value[i:n], c.gap())...)
			i = n
			continue
		}
		c.skipBlanks()
		if c.Rune() != value[i] {
			return nil, false
		}
		at = append(at, c.Pos())
		c.Next()
		if single && value[i] == '\'' {
			c.Next()
		}
		i++
	}
	end := c.Pos()
	if n := len(value); n > 0 && IsBlank(value[n-1]) && !single {
		end = at[n-1] // white space after a block belongs to what follows
	}
	return append(at, end), true
}

// A spot is a rune of the text with its position.
type spot struct {
	rune rune
	pos  diag.Pos
}

// gap skips white space and returns it.
func (c *Cursor) gap() []spot {
	var gap []spot
	for r := c.Rune(); IsBlank(r); r = c.Rune() {
		gap = append(gap, spot{r, c.Pos()})
		c.Next()
	}
	if len(gap) == 0 {
		gap = append(gap, spot{EOF, c.Pos()})
	}
	return gap
}

// spread aligns white space of a value with white space of the text. It aligns what precedes the first line
// break from the left, and what follows the last one from the right, since YAML drops indentation. Line breaks,
// and a space that replaces one, align with line breaks.
func spread(value []rune, gap []spot) []diag.Pos {
	at := make([]diag.Pos, len(value))
	g := 0
	for i, r := range value {
		if r == '\n' {
			for g < len(gap)-1 && gap[g].rune != '\n' {
				g++
			}
		}
		at[i] = gap[g].pos
		if g < len(gap)-1 {
			g++
		}
	}
	tail := len(value)
	for tail > 0 && value[tail-1] != '\n' {
		tail--
	}
	if tail == 0 {
		return at
	}
	for i, j := len(value)-1, len(gap)-1; i >= tail && j >= 0 && gap[j].rune != '\n'; i, j = i-1, j-1 {
		at[i] = gap[j].pos
	}
	return at
}

// unquote aligns a double-quoted scalar of n runes.
func (c *Cursor) unquote(n int) ([]diag.Pos, bool) {
	at := make([]diag.Pos, 0, n+1)
	for {
		switch r := c.Rune(); {
		case r == EOF:
			return nil, false
		case r == '"':
			return append(at, c.Pos()), len(at) == n
		case r == '\\':
			at = append(at, c.escape()...)
		case IsBlank(r):
			at = append(at, fold(c.gap())...)
		default:
			at = append(at, c.Pos())
			c.Next()
		}
	}
}

// escape skips an escape and returns the positions of what it means: one rune, or as many line breaks as there
// are empty lines after an escaped one.
func (c *Cursor) escape() []diag.Pos {
	start := c.Pos()
	c.Next()
	if c.Rune() == '\n' {
		c.Next()
		gap := c.gap()
		var at []diag.Pos
		for _, m := range gap {
			if m.rune == '\n' {
				at = append(at, m.pos)
			}
		}
		return at
	}
	digits := map[rune]int{'x': 2, 'u': 4, 'U': 8}[c.Rune()]
	if line := c.Lines[c.Line]; pair.MatchString(string(line[c.Column-1 : min(len(line), c.Column+len(`uD83D\uDE00`))])) {
		digits += len(`\uDE00`)
	}
	for range 1 + digits {
		c.Next()
	}
	return []diag.Pos{start}
}

// fold returns the value of white space inside double quotes. On one line it stays. One line break becomes a
// space, and more become one fewer.
func fold(gap []spot) []diag.Pos {
	var at, ends []diag.Pos
	for _, m := range gap {
		at = append(at, m.pos)
		if m.rune == '\n' {
			ends = append(ends, m.pos)
		}
	}
	if len(ends) > 0 {
		at = ends[:max(1, len(ends)-1)]
	}
	return at
}
