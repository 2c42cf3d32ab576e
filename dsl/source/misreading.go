package source

import (
	"bytes"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// This file says where the parser reads something else than YAML 1.2. The public test suite of YAML has shown these places. What
// the parser refuses, or reads although it is not YAML, is in the list of suite_test.go.

// wholeLines returns the text for the parser. It takes a last line of blanks without a line end for text of a block.
func wholeLines(data []byte) []byte {
	last := data[bytes.LastIndexByte(data, '\n')+1:]
	if len(last) > 0 && len(bytes.Trim(last, " ")) == 0 {
		return append(bytes.Clone(data), '\n')
	}
	return data
}

// misreadings reports nodes that the parser has misread. It returns whether there are none.
func (s *Source) misreadings(n *yaml.Node) bool {
	fine := s.wholeAnchor(n)
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && s.questioned(child) {
			fine = false
		}
		if !s.misreadings(child) {
			fine = false
		}
	}
	return fine
}

// wholeAnchor reports an anchor or alias whose name the parser has cut off, as &a of &a:b.
func (s *Source) wholeAnchor(n *yaml.Node) bool {
	name := n.Anchor
	if n.Kind == yaml.AliasNode {
		name = n.Value
	}
	c := &Cursor{Lines: s.Lines, Line: n.Line - 1, Column: n.Column - 1}
	for c.Rune() == '!' {
		c.skipProperty()
	}
	if name == "" || c.Rune() != '&' && c.Rune() != '*' {
		return true
	}
	from := c.Pos()
	text := ""
	for c.Next(); c.Rune() != EOF && !IsBlank(c.Rune()) && !strings.ContainsRune(",[]{}", c.Rune()); c.Next() {
		text += string(c.Rune())
	}
	behind, ok := strings.CutPrefix(text, name)
	if !ok || behind == "" {
		return true
	}
	s.Errorf(s.at(from, c.Pos()), rules.Syntax, "use letters, digits, - and _ in the names of anchors, and put a space behind them",
		"the anchor is called %q, but the parser would read %q only", text, name)
	return false
}

// questioned reports a key behind a ? without a space, which is text of the key in YAML 1.2.
func (s *Source) questioned(n *yaml.Node) bool {
	if n.Line > len(s.Lines) || n.Column < 2 || n.Column-2 >= len(s.Lines[n.Line-1]) || s.Lines[n.Line-1][n.Column-2] != '?' {
		return false
	}
	from := diag.Pos{Line: n.Line, Column: n.Column - 1}
	s.Errorf(s.toLineEnd(from), rules.Syntax, "put the text in quotes: "+strconv.Quote("?"+n.Value),
		"the text ?%s begins with ?, which the parser would take for the mark of a key", n.Value)
	return true
}
