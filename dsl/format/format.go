package format

import (
	"errors"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/source"
	"procaas/dsl/syntax"
)

// formatWidth is the maximum width, in runes, of a line with an expression. Longer expressions become blocks.
const formatWidth = 100

// ErrUnformatted reports that a file was left unchanged, because its new layout could not be proved to have the
// same meaning.
var ErrUnformatted = errors.New("the layout cannot be changed without changing what the file means")

// Reformat applies the standard layout: two spaces per level, lists indented below their key, single spaces, at
// most one empty line. Long expressions and wide brackets become blocks. Comments, empty lines and the order
// stay. Formatting the result again changes nothing.
//
// Reformat reads the result again and compares values, expressions and comments with the original. If they
// differ, it returns [ErrUnformatted]. For invalid YAML it returns findings.
func Reformat(f diag.File) ([]byte, []diag.Diagnostic, error) {
	s, root, found := readForm(f)
	if diag.HasErrors(found) {
		return nil, found, nil
	}
	if root == nil {
		return tidy(s), nil, nil
	}
	text, err := settled(s, root)
	if err != nil {
		return nil, nil, err
	}
	return broken(s, text, root), nil, nil
}

// settled formats a text until another pass changes nothing. That usually takes one pass, but an expression
// that becomes a block may move its comment.
func settled(s *source.Source, root *yaml.Node) ([]byte, error) {
	text, err := format(s, root)
	for range 3 {
		if err != nil {
			return nil, err
		}
		again, next, found := readForm(diag.File{Name: s.Name, Data: text})
		if next == nil || diag.HasErrors(found) || !same(s, again, root, next) {
			return nil, ErrUnformatted
		}
		var settled []byte
		if settled, err = format(again, next); err == nil && slices.Equal(settled, text) {
			return text, nil
		}
		text = settled
	}
	return nil, ErrUnformatted
}

// readForm returns the nodes of a file, or nil if it is empty. Its findings are only those that make the YAML
// invalid.
func readForm(f diag.File) (*source.Source, *yaml.Node, []diag.Diagnostic) {
	var r diag.Reporter
	s, ok := source.New(f, &r)
	if !ok {
		return s, nil, r.Found
	}
	root := s.Read()
	if root == nil || !s.Measure(root) {
		return s, nil, r.Found
	}
	s.Foreign = source.MarksContract(root)
	if s.Colons {
		s.Lines = nil
		s.Split()
	}
	return s, root, r.Found
}

// tidy formats a file that contains only comments.
func tidy(s *source.Source) []byte {
	var out layout
	for _, line := range s.Lines {
		out.line(strings.TrimSpace(string(line)))
	}
	return out.bytes()
}

// same reports whether two texts have the same values, expressions and comments.
func same(s *source.Source, other *source.Source, a, b *yaml.Node) bool {
	var first, second diag.Reporter
	s.Reporter, other.Reporter = &first, &second
	s.Findings, other.Findings = 0, 0
	equal := sameMeaning(s.Value(a), other.Value(b))
	return equal && len(first.Found) == len(second.Found) && slices.Equal(s.Comments, laidComments(other, b))
}

// laidComments returns the comments of a formatted text.
func laidComments(s *source.Source, root *yaml.Node) []string {
	if _, err := format(s, root); err != nil {
		return nil
	}
	return s.Comments
}

// sameMeaning reports whether two values are equal, independently of their positions.
func sameMeaning(a, b *expr.Value) bool {
	if a.Kind != b.Kind || a.Scalar != b.Scalar || a.Secret != b.Secret || len(a.Elems) != len(b.Elems) || len(a.Names) != len(b.Names) {
		return false
	}
	if a.Kind == expr.ValueExpr && !sameExpr(a.Computed.Source, b.Computed.Source) {
		return false
	}
	for i := range a.Names {
		if a.Names[i].Name != b.Names[i].Name {
			return false
		}
	}
	for i := range a.Elems {
		if !sameMeaning(a.Elems[i], b.Elems[i]) {
			return false
		}
	}
	return true
}

// sameExpr reports whether two expressions have the same tokens.
func sameExpr(a, b string) bool {
	if a == b {
		return true
	}
	first, flaw1 := syntax.Scan(a)
	second, flaw2 := syntax.Scan(b)
	return flaw1 == nil && flaw2 == nil && slices.EqualFunc(first, second, func(x, y syntax.Token) bool {
		return x.Kind == y.Kind && x.Text == y.Text
	})
}

// A layout is a file that is being written.
type layout struct {
	lines []string
	keep  bool // empty lines count, because they belong to the text above
	open  bool // the last line has no line break, and must not get one
}

// line adds a line, but no second empty line in a row.
func (l *layout) line(text string) {
	if text != "" {
		l.keep = false
		l.open = false
	} else if !l.keep && (len(l.lines) == 0 || l.lines[len(l.lines)-1] == "") {
		return
	}
	l.lines = append(l.lines, text)
}

func (l *layout) bytes() []byte {
	lines := l.lines
	for !l.keep && len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	if len(lines) == 0 {
		return nil
	}
	text := strings.Join(lines, "\n")
	if !l.open {
		text += "\n"
	}
	return []byte(text)
}
