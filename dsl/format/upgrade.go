package format

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"procaas/dsl/diag"
	"procaas/dsl/source"
	"procaas/dsl/syntax"
)

// ErrNotUpgraded reports that a file was left unchanged, because its second version could not be proved to have
// the same meaning.
var ErrNotUpgraded = errors.New("what is of the first version cannot be rewritten here without changing what the file means")

// Upgrade converts operators of the first version of the language, such as enabled#and and value#xget, to
// expressions of the second. Everything else stays. Comments inside a condition move above it.
//
// Upgrade reads the result again and compares its expressions with those of the first version. If they differ,
// it returns [ErrNotUpgraded]. For a file with errors it returns findings.
func Upgrade(f diag.File) ([]byte, []diag.Diagnostic, error) {
	s, root, found := readForm(f)
	if root == nil || diag.HasErrors(found) || s.Foreign {
		return f.Data, found, nil
	}
	var r diag.Reporter
	s.Reporter = &r
	was := s.Value(root)
	switch {
	case !hasV1(s, root):
		return f.Data, nil, nil
	case diag.HasErrors(r.Found):
		return nil, r.Found, nil
	}
	u := &upgrader{Source: s, scalars: map[diag.Pos]*yaml.Node{}}
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
	again.Reporter = &after
	if now := again.Value(next); diag.HasErrors(after.Found) || !sameTrees(was, now) ||
		!slices.Equal(remarksOf(s, root), remarksOf(again, next)) {
		return nil, nil, ErrNotUpgraded
	}
	return text, nil, nil
}

// hasV1 reports whether a value contains an operator of the first version.
func hasV1(s *source.Source, n *yaml.Node) bool {
	if n.Kind == yaml.MappingNode {
		if op, _ := s.V1Whole(n); op != nil {
			return true
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if _, op := source.V1Key(s, n.Content[i]); op != nil && !source.IsQuoted(n.Content[i]) {
				return true
			}
		}
	}
	return slices.ContainsFunc(n.Content, func(child *yaml.Node) bool { return hasV1(s, child) })
}

// gather collects the scalars by position.
func gather(s *source.Source, n *yaml.Node, scalars map[diag.Pos]*yaml.Node) {
	if n.Kind == yaml.ScalarNode && (n.Value != "" || source.IsQuoted(n)) {
		c := &source.Cursor{Lines: s.Lines, Line: n.Line - 1, Column: n.Column - 1}
		c.SkipProperties()
		scalars[c.Pos()] = n
	}
	for _, child := range n.Content {
		gather(s, child, scalars)
	}
}

// remarksOf returns all comments of a text, sorted, since some of them move.
func remarksOf(s *source.Source, root *yaml.Node) []string {
	scalars := map[diag.Pos]*yaml.Node{}
	gather(s, root, scalars)
	found := commentsIn(s, scalars, diag.Pos{Line: 1, Column: 1}, diag.Pos{Line: len(s.Lines) + 1, Column: 1})
	slices.Sort(found)
	return found
}

// commentsIn returns the comments that begin in a range.
func commentsIn(s *source.Source, scalars map[diag.Pos]*yaml.Node, from, to diag.Pos) []string {
	var found []string
	c := &source.Cursor{Lines: s.Lines, Line: from.Line - 1, Column: from.Column - 1}
	blank := true
	for c.Rune() != source.EOF && before(c.Pos(), to) {
		if n := scalars[c.Pos()]; n != nil {
			end := s.NodeSpan(n).End
			if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 && before(c.Pos(), end) {
				c.Line, c.Column, blank = end.Line-1, end.Column-1, false
				continue
			}
		}
		r := c.Rune()
		switch {
		case r == '#' && blank:
			found = append(found, strings.TrimRight(string(c.Lines[c.Line][c.Column:]), " \t"))
			c.Line, c.Column = c.Line+1, 0
			continue
		case (r == '|' || r == '>') && blank:
			if n := blockAt(scalars, c.Pos()); n != nil {
				header := string(c.Lines[c.Line][c.Column:])
				if i := strings.Index(header, " #"); i >= 0 {
					found = append(found, strings.TrimRight(header[i+1:], " \t"))
				}
				end := s.NodeSpan(n).End
				c.Line, c.Column = max(c.Line, end.Line-1)+1, 0
				continue
			}
		}
		blank = source.IsBlank(r)
		c.Next()
	}
	return found
}

// blockAt returns the block whose header is at a position.
func blockAt(scalars map[diag.Pos]*yaml.Node, at diag.Pos) *yaml.Node {
	if n := scalars[at]; n != nil && n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return n
	}
	return nil
}

func before(a, b diag.Pos) bool { return a.Line < b.Line || a.Line == b.Line && a.Column < b.Column }

// An edit replaces a range of a text.
type edit struct {
	from, to diag.Pos
	text     string
	above    []string // comments to put above the line
	upgrade  bool     // the replaced text is of the first version
}

// An upgrader looks for operators of the first version.
type upgrader struct {
	*source.Source
	scalars map[diag.Pos]*yaml.Node
	edits   []edit
	failed  bool
}

// node visits a value. Inside brackets (flow), blocks are not allowed.
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
			at := u.NodeSpan(key)
			if name, op := source.V1Key(u.Source, key); op != nil && name != "" && !source.IsQuoted(key) {
				u.replace(at.Start, value, name+": ", at.Start.Column+1, flow, op, value)
			} else if op, arg := u.whole(value); op != nil {
				u.replace(at.End, value, ": ", at.Start.Column+1, flow, op, arg)
			} else {
				u.node(value, flow)
			}
		}
	}
}

// whole reports whether a value is one operator with its arguments.
func (u *upgrader) whole(n *yaml.Node) (*source.V1Op, *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return nil, nil
	}
	op, arg := u.V1Whole(n)
	if op != nil && (n.Anchor != "" || n.Style&yaml.TaggedStyle != 0) {
		u.failed = true // its name would be lost
	}
	return op, arg
}

// replace writes an expression instead of an operator and its arguments.
func (u *upgrader) replace(from diag.Pos, n *yaml.Node, head string, indent int, flow bool, op *source.V1Op, arg *yaml.Node) {
	w := &v1Text{Source: u.Source}
	text, _ := w.operator(op, arg)
	if op.Name != "and" && op.Name != "or" {
		w.operands = nil
	}
	to := u.endOf(n)
	if !before(from, to) {
		to = diag.Pos{Line: from.Line, Column: from.Column}
		u.failed = true
	}
	e := edit{from: from, to: to, above: commentsIn(u.Source, u.scalars, from, to)}
	if rest := strings.TrimSpace(string(u.Lines[to.Line-1][to.Column-1:])); strings.HasPrefix(rest, "#") {
		e.above = append(e.above, rest)
		e.to.Column = len(u.Lines[to.Line-1]) + 1
	}
	room := formatWidth - (from.Column - 1) - utf8.RuneCountInString(head) - len("!$ ")
	switch lines := w.lines(text, formatWidth-indent); {
	case flow && (strings.ContainsAny(text, ",{}[]") || !plainSafe(text)):
		e.text = head + "!$ " + syntax.InDoubleQuotes(text)
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

// endOf returns the end of a value, including its closing bracket.
func (u *upgrader) endOf(n *yaml.Node) diag.Pos {
	var r diag.Reporter
	quiet := *u.Source
	quiet.Reporter, quiet.Findings = &r, 0
	if n.Kind == yaml.ScalarNode || n.Kind == yaml.AliasNode {
		return u.NodeSpan(n).End
	}
	var last diag.Pos
	if len(n.Content) > 0 {
		last = u.endOf(n.Content[len(n.Content)-1])
	}
	return quiet.Closed(n, last).End
}

// plainSafe reports whether a text can follow !$ without quotes.
func plainSafe(text string) bool {
	return !strings.ContainsAny(text[:1], "[]{}!&*|>'\"%@`#,?-") && !strings.Contains(text, ": ") && !strings.Contains(text, " #") &&
		!strings.HasSuffix(text, ":") && !strings.ContainsAny(text, "\n")
}

// apply builds the new text. The edits are in the order of the file.
func (u *upgrader) apply() []byte {
	var out strings.Builder
	at := diag.Pos{Line: 1, Column: 1}
	copyTo := func(to diag.Pos) {
		for at.Line < to.Line {
			out.WriteString(string(u.Lines[at.Line-1][at.Column-1:]) + "\n")
			at = diag.Pos{Line: at.Line + 1, Column: 1}
		}
		out.WriteString(string(u.Lines[at.Line-1][at.Column-1 : to.Column-1]))
		at = to
	}
	for i := 0; i < len(u.edits); {
		line := u.edits[i].from.Line
		if at.Line < line {
			copyTo(diag.Pos{Line: line, Column: 1})
		}
		first := string(u.Lines[line-1])
		indent := first[:len(first)-len(strings.TrimLeft(first, " "))]
		j := i
		for ; j < len(u.edits) && u.edits[j].from.Line == line; j++ {
			for _, c := range u.edits[j].above {
				if at.Column > 1 {
					u.failed = true // the preceding text ended on this line
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
	copyTo(diag.Pos{Line: len(u.Lines), Column: len(u.Lines[len(u.Lines)-1]) + 1})
	text := []byte(out.String())
	if bytes.Count(u.Data, []byte("\r\n")) == bytes.Count(u.Data, []byte("\n")) {
		text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	}
	return text
}
