package dsl

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"procaas/dsl/diag"
)

// ErrNotUpgraded says that a file is left as it is, because its second version
// could not be proved to mean the same.
var ErrNotUpgraded = errors.New("what is of the first version cannot be rewritten here without changing what the file means")

// Upgrade turns what is of the first version of the language, such as
// enabled#and and value#xget, into expressions of the second. All else stays as
// it is written; comments inside of a condition move above it.
//
// What it gives is read again: its expressions have the same trees as those that
// the first version is compiled to. If they have not, the file is left alone and
// the error is [ErrNotUpgraded]. A file with mistakes has findings instead.
func Upgrade(f diag.File) ([]byte, []diag.Diagnostic, error) {
	s, root, found := readForm(f)
	if root == nil || diag.HasErrors(found) || s.foreign {
		return f.Data, found, nil
	}
	var r diag.Reporter
	s.reporter = &r
	was := s.value(root)
	switch {
	case !s.hasV1(root):
		return f.Data, nil, nil
	case diag.HasErrors(r.Found):
		return nil, r.Found, nil
	}
	u := &upgrader{source: s, scalars: map[diag.Pos]*yaml.Node{}}
	gather(s, root, u.scalars)
	u.node(root, false)
	if u.failed {
		return nil, nil, ErrNotUpgraded
	}
	text := u.apply()
	if u.failed {
		return nil, nil, ErrNotUpgraded
	}
	again, next, found := readForm(diag.File{Name: f.Name, Data: text})
	if next == nil || diag.HasErrors(found) {
		return nil, nil, ErrNotUpgraded
	}
	var after diag.Reporter
	again.reporter = &after
	if now := again.value(next); diag.HasErrors(after.Found) || !sameTrees(was, now) ||
		!slices.Equal(s.remarksOf(root), again.remarksOf(next)) {
		return nil, nil, ErrNotUpgraded
	}
	return text, nil, nil
}

// hasV1 tells whether anything in a value is of the first version.
func (s *source) hasV1(n *yaml.Node) bool {
	if n.Kind == yaml.MappingNode {
		if op, _ := s.v1Whole(n); op != nil {
			return true
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if _, op := v1Key(s, n.Content[i]); op != nil && !isQuoted(n.Content[i]) {
				return true
			}
		}
	}
	return slices.ContainsFunc(n.Content, s.hasV1)
}

// gather remembers where each scalar begins.
func gather(s *source, n *yaml.Node, scalars map[diag.Pos]*yaml.Node) {
	if n.Kind == yaml.ScalarNode && (n.Value != "" || isQuoted(n)) {
		c := &cursor{lines: s.lines, line: n.Line - 1, column: n.Column - 1}
		c.skipProperties()
		scalars[c.pos()] = n
	}
	for _, child := range n.Content {
		gather(s, child, scalars)
	}
}

// remarksOf gives all comments of a text, sorted: some of them move.
func (s *source) remarksOf(root *yaml.Node) []string {
	scalars := map[diag.Pos]*yaml.Node{}
	gather(s, root, scalars)
	found := s.commentsIn(scalars, diag.Pos{Line: 1, Column: 1}, diag.Pos{Line: len(s.lines) + 1, Column: 1})
	slices.Sort(found)
	return found
}

// commentsIn gives the comments that begin between two places.
func (s *source) commentsIn(scalars map[diag.Pos]*yaml.Node, from, to diag.Pos) []string {
	var found []string
	c := &cursor{lines: s.lines, line: from.Line - 1, column: from.Column - 1}
	blank := true
	for c.rune() != eof && before(c.pos(), to) {
		if n := scalars[c.pos()]; n != nil {
			end := s.nodeSpan(n).End
			if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 && before(c.pos(), end) {
				c.line, c.column, blank = end.Line-1, end.Column-1, false
				continue
			}
		}
		r := c.rune()
		switch {
		case r == '#' && blank:
			found = append(found, strings.TrimRight(string(c.lines[c.line][c.column:]), " \t"))
			c.line, c.column = c.line+1, 0
			continue
		case (r == '|' || r == '>') && blank:
			if n := blockAt(scalars, c.pos()); n != nil {
				header := string(c.lines[c.line][c.column:])
				if i := strings.Index(header, " #"); i >= 0 {
					found = append(found, strings.TrimRight(header[i+1:], " \t"))
				}
				end := s.nodeSpan(n).End
				c.line, c.column = max(c.line, end.Line-1)+1, 0
				continue
			}
		}
		blank = isBlank(r)
		c.next()
	}
	return found
}

// blockAt gives the block whose header stands at a place.
func blockAt(scalars map[diag.Pos]*yaml.Node, at diag.Pos) *yaml.Node {
	if n := scalars[at]; n != nil && n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return n
	}
	return nil
}

func before(a, b diag.Pos) bool { return a.Line < b.Line || a.Line == b.Line && a.Column < b.Column }

// An edit replaces a stretch of a text.
type edit struct {
	from, to diag.Pos
	text     string
	above    []string // comments to put above the line
	upgrade  bool     // what follows is of the first version
}

// An upgrader finds what is of the first version.
type upgrader struct {
	*source
	scalars map[diag.Pos]*yaml.Node
	edits   []edit
	failed  bool
}

// node looks for it in a value; in flow, no block can stand.
func (u *upgrader) node(n *yaml.Node, flow bool) {
	flow = flow || n.Style&yaml.FlowStyle != 0
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			if op, arg := u.whole(item); op != nil {
				at := diag.Pos{Line: item.Line, Column: item.Column}
				u.replace(at, item, "", at.Column-1, flow, op, arg)
				continue
			}
			u.node(item, flow)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			at := u.nodeSpan(key)
			if name, op := v1Key(u.source, key); op != nil && name != "" && !isQuoted(key) {
				u.replace(at.Start, value, name+": ", at.Start.Column+1, flow, op, value)
			} else if op, arg := u.whole(value); op != nil {
				u.replace(at.End, value, ": ", at.Start.Column+1, flow, op, arg)
			} else {
				u.node(value, flow)
			}
		}
	}
}

// whole tells whether a value is one operator with its arguments.
func (u *upgrader) whole(n *yaml.Node) (*v1Op, *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return nil, nil
	}
	op, arg := u.v1Whole(n)
	if op != nil && (n.Anchor != "" || n.Style&yaml.TaggedStyle != 0) {
		u.failed = true // its name would be lost
	}
	return op, arg
}

// replace writes an expression in the place of an operator and its arguments.
func (u *upgrader) replace(from diag.Pos, n *yaml.Node, head string, indent int, flow bool, op *v1Op, arg *yaml.Node) {
	w := &v1Text{source: u.source}
	text, _ := w.operator(op, arg)
	if op.name != "and" && op.name != "or" {
		w.operands = nil
	}
	to := u.endOf(n)
	if !before(from, to) {
		to = diag.Pos{Line: from.Line, Column: from.Column}
		u.failed = true
	}
	e := edit{from: from, to: to, above: u.commentsIn(u.scalars, from, to)}
	if rest := strings.TrimSpace(string(u.lines[to.Line-1][to.Column-1:])); strings.HasPrefix(rest, "#") {
		e.above = append(e.above, rest)
		e.to.Column = len(u.lines[to.Line-1]) + 1
	}
	room := formatWidth - (from.Column - 1) - utf8.RuneCountInString(head) - len("!$ ")
	switch lines := w.lines(text, formatWidth-indent); {
	case flow && (strings.ContainsAny(text, ",{}[]") || !plainSafe(text)):
		e.text = head + "!$ " + quoteFlow(text)
	case flow || len(lines) == 1 && plainSafe(text) && utf8.RuneCountInString(text) <= room:
		e.text = head + "!$ " + text
	default:
		e.text = head + "!$ |"
		for _, line := range lines {
			e.text += "\n" + strings.Repeat(" ", indent) + line
		}
	}
	u.edits = append(u.edits, e)
}

// endOf tells where a value ends, with its closing bracket.
func (u *upgrader) endOf(n *yaml.Node) diag.Pos {
	var r diag.Reporter
	quiet := *u.source
	quiet.reporter, quiet.findings = &r, 0
	if n.Kind == yaml.ScalarNode || n.Kind == yaml.AliasNode {
		return u.nodeSpan(n).End
	}
	var last diag.Pos
	if len(n.Content) > 0 {
		last = u.endOf(n.Content[len(n.Content)-1])
	}
	return quiet.closed(n, last).End
}

// plainSafe tells whether a text can stand behind !$ without quotes.
func plainSafe(text string) bool {
	return !strings.ContainsAny(text[:1], "[]{}!&*|>'\"%@`#,?-") && !strings.Contains(text, ": ") && !strings.Contains(text, " #") &&
		!strings.HasSuffix(text, ":") && !strings.ContainsAny(text, "\n")
}

// apply makes the new text. The edits stand in the order of the file.
func (u *upgrader) apply() []byte {
	var out strings.Builder
	at := diag.Pos{Line: 1, Column: 1}
	copyTo := func(to diag.Pos) {
		for at.Line < to.Line {
			out.WriteString(string(u.lines[at.Line-1][at.Column-1:]) + "\n")
			at = diag.Pos{Line: at.Line + 1, Column: 1}
		}
		out.WriteString(string(u.lines[at.Line-1][at.Column-1 : to.Column-1]))
		at = to
	}
	for i := 0; i < len(u.edits); {
		line := u.edits[i].from.Line
		if at.Line < line {
			copyTo(diag.Pos{Line: line, Column: 1})
		}
		first := string(u.lines[line-1])
		indent := first[:len(first)-len(strings.TrimLeft(first, " "))]
		j := i
		for ; j < len(u.edits) && u.edits[j].from.Line == line; j++ {
			for _, c := range u.edits[j].above {
				if at.Column > 1 {
					u.failed = true // what precedes has ended on this line
				}
				out.WriteString(indent + c + "\n")
			}
		}
		for ; i < j; i++ {
			copyTo(u.edits[i].from)
			out.WriteString(u.edits[i].text)
			at = u.edits[i].to
		}
	}
	copyTo(diag.Pos{Line: len(u.lines), Column: len(u.lines[len(u.lines)-1]) + 1})
	text := []byte(out.String())
	if bytes.Count(u.data, []byte("\r\n")) == bytes.Count(u.data, []byte("\n")) {
		text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	}
	return text
}
