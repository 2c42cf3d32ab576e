package format

import (
	"strings"

	"gopkg.in/yaml.v3"

	"procaas/dsl/diag"
	"procaas/dsl/source"
)

// FlowWidth is the maximum width, in runes, of a line with a list or mapping in brackets. Wider ones become
// blocks. It is larger than formatWidth, since an entry on one line is easier to read than a long expression.
const FlowWidth = 120

// maxFlowRounds limits how often new blocks lead to further ones. The nesting of YAML is limited, so it is
// never reached.
const maxFlowRounds = 2 * source.MaxNesting

// breakFlows turns lists and mappings in brackets into blocks if they make a line too wide. It breaks only the
// outermost ones, with one entry per line. A comment at the end of the line moves above it. It reports whether
// there were any.
//
// It keeps brackets that span several lines. It keeps lines with a comment that suppresses findings, since
// these could move to another line.
func breakFlows(s *source.Source, root *yaml.Node) ([]byte, bool) {
	b := &flowBreaker{Source: s, blocks: map[int][]string{}}
	b.visit(root, nil)
	if len(b.blocks) == 0 {
		return nil, false
	}
	var lines []string
	for i, line := range s.Lines {
		if block, ok := b.blocks[i+1]; ok {
			lines = append(lines, block...)
		} else {
			lines = append(lines, string(line))
		}
	}
	return []byte(strings.Join(lines, "\n")), true
}

// A flowBreaker finds lines that are too wide, and their replacements.
type flowBreaker struct {
	*source.Source
	blocks map[int][]string // by number of the line
}

// visit looks for lists and mappings in brackets. key is the key of n, or nil for an element of a list.
func (b *flowBreaker) visit(n, key *yaml.Node) {
	switch {
	case n.Kind != yaml.SequenceNode && n.Kind != yaml.MappingNode:
	case n.Style&yaml.FlowStyle != 0:
		b.flow(n, key)
	case n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			b.visit(item, nil)
		}
	default:
		for i := 0; i+1 < len(n.Content); i += 2 {
			b.visit(n.Content[i+1], n.Content[i])
		}
	}
}

// flow turns one list or mapping in brackets into a block if its line is too wide.
func (b *flowBreaker) flow(n, key *yaml.Node) {
	line := b.Lines[n.Line-1]
	if len(line) <= FlowWidth || len(n.Content) == 0 || b.blocks[n.Line] != nil || b.kept(n.Line) {
		return
	}
	c := &source.Cursor{Lines: b.Lines, Line: n.Line - 1, Column: n.Column - 1}
	c.SkipProperties()
	begin := c.Column
	properties := strings.TrimSpace(string(line[n.Column-1 : begin]))
	end, ok := b.end(n)
	if !ok || strings.HasPrefix(properties, "!") || key != nil && key.Line != n.Line {
		return
	}
	rest := strings.TrimSpace(string(line[end:]))
	if rest != "" && rest[0] != '#' {
		return
	}
	entries, ok := b.entries(n)
	if !ok {
		return
	}
	before := string(line[:n.Column-1])
	own := source.IndentOf(line)
	var out []string
	if rest != "" {
		out = append(out, strings.Repeat(" ", own)+rest)
	}
	indent := n.Column - 1 // of an element of a list, whose first entry follows
	switch {
	case key != nil:
		indent = key.Column - 1 + 2
		out = append(out, strings.TrimRight(before+properties, " "))
	case properties != "":
		out = append(out, before+properties)
	default:
		out = append(out, before+entries[0])
		entries = entries[1:]
	}
	for _, e := range entries {
		out = append(out, strings.Repeat(" ", indent)+e)
	}
	b.blocks[n.Line] = out
}

// kept reports whether a comment on a line, or on the one above, suppresses findings.
func (b *flowBreaker) kept(line int) bool {
	for _, l := range b.Lines[max(0, line-2):line] {
		if strings.Contains(string(l), "procaas:ignore") {
			return true
		}
	}
	return false
}

// entries returns the content of the brackets as entries of a block.
func (b *flowBreaker) entries(n *yaml.Node) ([]string, bool) {
	var out []string
	step := 1
	if n.Kind == yaml.MappingNode {
		step = 2
	}
	for i := 0; i+step <= len(n.Content); i += step {
		parts := make([]string, step)
		for j, part := range n.Content[i : i+step] {
			text, ok := b.text(part)
			if !ok || j == 0 && step == 2 && (part.Kind != yaml.ScalarNode || text == "") {
				return nil, false
			}
			parts[j] = text
		}
		switch {
		case step == 1:
			out = append(out, strings.TrimRight("- "+parts[0], " "))
		default:
			out = append(out, strings.TrimRight(parts[0]+": "+parts[1], " "))
		}
	}
	return out, true
}

// text returns the source of a node on one line. It is empty for an omitted value.
func (b *flowBreaker) text(n *yaml.Node) (string, bool) {
	end, ok := b.end(n)
	from := n.Column - 1
	if !ok || end < from {
		return "", false
	}
	text := strings.TrimRight(string(b.Lines[n.Line-1][from:end]), " ")
	if n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle == 0 || strings.HasPrefix(text, "?") {
		return "", false // [a: 1] has a mapping without brackets
	}
	return text, true
}

// end returns the column after a node that begins and ends on one line.
func (b *flowBreaker) end(n *yaml.Node) (int, bool) {
	if n.Kind == yaml.ScalarNode || n.Kind == yaml.AliasNode {
		if isLeftOut(n) {
			return n.Column - 1, true
		}
		span := b.NodeSpan(n)
		return span.End.Column - 1, span.End.Line == n.Line && span.End.Column-1 <= len(b.Lines[n.Line-1])
	}
	c := &source.Cursor{Lines: b.Lines, Line: n.Line - 1, Column: n.Column - 1}
	c.SkipProperties()
	line := b.Lines[n.Line-1]
	at := c.Column + 1
	if len(n.Content) > 0 {
		last := n.Content[len(n.Content)-1]
		behind, ok := b.end(last)
		if !ok || last.Line != n.Line {
			return 0, false
		}
		at = max(at, behind)
	}
	for at < len(line) && strings.ContainsRune(" ,:", line[at]) {
		at++
	}
	if at >= len(line) || line[at] != ']' && line[at] != '}' {
		return 0, false
	}
	return at + 1, true
}

// isLeftOut reports whether a scalar has no text.
func isLeftOut(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Value == "" && !source.IsQuoted(n) && n.Anchor == "" && n.Style&yaml.TaggedStyle == 0
}

// broken formats a text until no line is too wide for its brackets. If a step would change the meaning, it
// keeps the text before that step.
func broken(s *source.Source, text []byte, root *yaml.Node) []byte {
	for range maxFlowRounds {
		now, at, found := readForm(diag.File{Name: s.Name, Data: text})
		if at == nil || diag.HasErrors(found) {
			return text
		}
		wide, ok := breakFlows(now, at)
		if !ok {
			return text
		}
		next, below, found := readForm(diag.File{Name: s.Name, Data: wide})
		if below == nil || diag.HasErrors(found) {
			return text
		}
		settled, err := settled(next, below)
		if err != nil || !same(s, next, root, below) {
			return text
		}
		text = settled
	}
	return text
}
