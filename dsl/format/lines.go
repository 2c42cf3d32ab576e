package format

import (
	"strings"

	"gopkg.in/yaml.v3"

	"procaas/dsl/diag"
	"procaas/dsl/source"
)

// A level is a list or mapping that is open at the start of a line: the current column of its entries, counted
// from 0, and the new one.
type level struct {
	old, new int
	list     bool
}

// A formatter formats one file, line by line. It uses the text, and only the positions of scalars come from the
// parser.
type formatter struct {
	*source.Source
	source.Cursor
	out     layout
	levels  []level
	scalars map[diag.Pos]*yaml.Node // by start, after tag and anchor
	waiting []remark                // comments for the next line
	block   int                     // the column that ends the block above, or -1
	failed  bool
}

// A remark is a line with a comment, or an empty line.
type remark struct {
	column int
	text   string
}

// format formats the text and collects its comments.
func format(s *source.Source, root *yaml.Node) ([]byte, error) {
	s.Comments = nil
	f := &formatter{Source: s, Cursor: source.Cursor{Lines: s.Lines}, scalars: map[diag.Pos]*yaml.Node{}, block: -1}
	gather(s, root, f.scalars)
	for f.Line < len(f.Cursor.Lines) && !f.failed {
		f.entry()
	}
	f.remarks(nil)
	if f.failed {
		return nil, ErrUnformatted
	}
	return f.out.bytes(), nil
}

// entry formats an entry, with all lines of its value that do not start entries themselves.
func (f *formatter) entry() {
	for f.Rune() == ' ' || f.Rune() == '\t' {
		f.Next()
	}
	switch {
	case f.Rune() == '\n' && f.Line == len(f.Cursor.Lines)-1:
		f.nextLine() // the text after the last line break is not a line
		return
	case f.Rune() == '\n' || f.Rune() == '#':
		rest := f.restOfLine()
		f.waiting = append(f.waiting, remark{f.Column, rest})
		f.nextLine()
		return
	case f.Column == 0 && f.marker():
		f.remarks(nil)
		f.levels = nil
		f.out.line(f.restOfLine())
		f.nextLine()
		return
	}
	before := append([]level(nil), f.levels...)
	begin := f.Column
	var heads []level
	for f.Rune() == '-' && f.blankAt(f.Column+1) {
		heads = append(heads, f.open(f.Column, true))
		f.Next()
		for f.Rune() == ' ' || f.Rune() == '\t' {
			f.Next()
		}
	}
	if r := f.Rune(); r != '\n' && r != '#' {
		if r == '?' && f.blankAt(f.Column+1) {
			f.failed = true
			return
		}
		heads = append(heads, f.open(f.Column, false))
	}
	f.remarks(append(heads[:1:1], before...))
	indent := heads[0].new
	text := strings.Repeat(" ", indent)
	for _, h := range heads {
		if h.list {
			text += "- "
		}
	}
	f.block = -1
	f.rest(text, indent-begin)
}

// marker reports whether the line begins or ends a document, or is a directive.
func (f *formatter) marker() bool {
	text := f.restOfLine()
	return strings.HasPrefix(text, "%") || text == "---" || text == "..." || strings.HasPrefix(text, "--- #")
}

func (f *formatter) nextLine() { f.Line, f.Column = f.Line+1, 0 }

// restOfLine returns the rest of the line without trailing spaces. It collects a comment.
func (f *formatter) restOfLine() string {
	text := strings.TrimRight(string(f.Cursor.Lines[f.Line][f.Column:]), " \t")
	if strings.HasPrefix(text, "#") {
		f.Source.Comments = append(f.Source.Comments, text)
	}
	return text
}

func (f *formatter) blankAt(column int) bool {
	c := source.Cursor{Lines: f.Cursor.Lines, Line: f.Line, Column: column}
	return source.IsBlank(c.Rune())
}

// open finds the list or mapping of an entry in a column.
func (f *formatter) open(column int, list bool) level {
	for len(f.levels) > 0 {
		top := f.levels[len(f.levels)-1]
		if top.old < column || top.old == column && (top.list == list || list) {
			break
		}
		f.levels = f.levels[:len(f.levels)-1]
	}
	here := level{old: column, list: list}
	if n := len(f.levels); n > 0 {
		top := f.levels[n-1]
		if top.old == column && top.list == list {
			return top
		}
		here.new = top.new + 2
	}
	f.levels = append(f.levels, here)
	return here
}

// indent returns the column of lines below the entry that was opened last.
func (f *formatter) indent() int {
	if len(f.levels) == 0 {
		return 0
	}
	return f.levels[len(f.levels)-1].new + 2
}

// remarks writes the comments and empty lines above an entry, in the column of one of the open levels. The
// first level is that of the entry.
func (f *formatter) remarks(levels []level) {
	if levels == nil {
		levels = f.levels
	}
	for _, r := range f.waiting {
		if r.text == "" {
			f.out.line("")
			continue
		}
		column := f.remarkColumn(r.column, levels)
		if f.block >= 0 {
			column = min(column, f.block) // further right it would be part of the block
		}
		f.out.line(strings.Repeat(" ", column) + r.text)
	}
	f.waiting = f.waiting[:0]
}

func (f *formatter) remarkColumn(column int, levels []level) int {
	best := level{old: -1}
	for _, l := range levels {
		if l.old == column {
			best = l
			break
		}
		if l.old < column && l.old >= best.old {
			best = l
		}
	}
	switch {
	case best.old == column:
		return best.new
	case best.old < 0:
		return 0
	}
	return best.new + 2
}
