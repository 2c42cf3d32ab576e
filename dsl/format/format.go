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

// formatWidth is how wide a line with an expression may be before the
// expression becomes a block, in runes.
const formatWidth = 100

// ErrUnformatted says that a file is left as it is, because its new layout
// could not be proved to mean the same.
var ErrUnformatted = errors.New("the layout cannot be changed without changing what the file means")

// Reformat gives a file the layout that all files have: two blanks for each level,
// lists below their key indented, one blank where one is enough, at most one empty
// line, long expressions as blocks, and wide lists and mappings in brackets, too. Comments and empty lines stay where they
// are, and so does the order of all things. Laid out again it stays the same.
//
// What it gives is read again and held against the original: it is the same
// values, expressions and comments. If it is not, the file is left alone and the
// error is [ErrUnformatted]. A file that is no YAML has findings instead.
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

// settled lays a text out until doing it again changes nothing, which it mostly does at
// once: a block that an expression has become may move the comment behind it.
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

// readForm reads the nodes of a file; nil when it is empty. What it finds is only
// what keeps it from being YAML.
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

// tidy is the layout of a file that holds nothing but comments.
func tidy(s *source.Source) []byte {
	var out layout
	for _, line := range s.Lines {
		out.line(strings.TrimSpace(string(line)))
	}
	return out.bytes()
}

// same reports whether two texts mean the same: values, expressions and comments.
func same(s *source.Source, other *source.Source, a, b *yaml.Node) bool {
	var first, second diag.Reporter
	s.Reporter, other.Reporter = &first, &second
	s.Findings, other.Findings = 0, 0
	equal := sameMeaning(s.Value(a), other.Value(b))
	return equal && len(first.Found) == len(second.Found) && slices.Equal(s.Comments, laidComments(other, b))
}

// commentsOf collects the comments of a text that has a layout.
func laidComments(s *source.Source, root *yaml.Node) []string {
	if _, err := format(s, root); err != nil {
		return nil
	}
	return s.Comments
}

// sameMeaning reports whether two values are the same, wherever they stand.
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

// sameExpr reports whether two texts of expressions are the same words.
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

// A layout is the text of a file while it is written.
type layout struct {
	lines []string
	keep  bool // empty lines count here: they belong to the text above
	open  bool // the last line has no end, and must not have one
}

// line adds one; of several empty lines only the first counts.
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
