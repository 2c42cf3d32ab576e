package format

import (
	"strings"

	"gopkg.in/yaml.v3"

	"procaas/dsl/diag"
	"procaas/dsl/source"
)

// FlowWidth is how wide a line with a list or mapping in brackets may be before it
// becomes a block, in runes. It is wider than formatWidth: an entry on one line is
// easily read, a long expression is not.
const FlowWidth = 120

// maxFlowRounds bounds how often what a block has laid bare becomes a block in its turn.
// Nesting is bounded, and so this is never reached.
const maxFlowRounds = 2 * source.MaxNesting

// breakFlows makes blocks of the lists and mappings in brackets that make a line too
// wide: of the outermost ones only, each entry on a line of its own. The comment behind
// such a line comes to stand above it. It reports whether there were any.
//
// What an author has spread over several lines is left alone, and so is a line that a
// comment takes findings back for: these may come to stand on another line.
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

// A flowBreaker finds the lines that are too wide, and what they become.
type flowBreaker struct {
	*source.Source
	blocks map[int][]string // by number of the line
}

// visit looks for lists and mappings in brackets below a block; key is that of the
// value, nil for the element of a list.
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

// flow makes a block of one list or mapping in brackets, if its line is too wide.
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
	indent := n.Column - 1 // of an element of a list, below which the first entry stands
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

// kept reports whether a comment on a line, or on the one above, takes findings back.
func (b *flowBreaker) kept(line int) bool {
	for _, l := range b.Lines[max(0, line-2):line] {
		if strings.Contains(string(l), "procaas:ignore") {
			return true
		}
	}
	return false
}

// entries writes what is in the brackets as entries of a block.
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

// text returns what is written for a node that stands on one line; empty for a value that
// is left out.
func (b *flowBreaker) text(n *yaml.Node) (string, bool) {
	end, ok := b.end(n)
	from := n.Column - 1
	if !ok || end < from {
		return "", false
	}
	text := strings.TrimRight(string(b.Lines[n.Line-1][from:end]), " ")
	if n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle == 0 || strings.HasPrefix(text, "?") {
		return "", false // [a: 1] has a mapping without brackets of its own
	}
	return text, true
}

// end finds the column behind a node that begins and ends on one line.
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

// isLeftOut reports whether nothing is written for a scalar.
func isLeftOut(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Value == "" && !source.IsQuoted(n) && n.Anchor == "" && n.Style&yaml.TaggedStyle == 0
}

// broken lays a text out until no line of it is too wide for its brackets. Should a step
// change what the file means, the text before it stays.
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
