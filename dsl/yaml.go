package dsl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// Bounds of one file. They keep a hostile file from costing more time or
// memory than an honest one.
const (
	maxFileBytes     = 1 << 20
	maxNesting       = 64
	maxAliases       = 100
	maxValues        = 200_000
	maxExpandedBytes = 4 << 20 // of all scalars, each counted as often as aliases repeat it
	maxFindings      = 200     // a file with more is not worth listing further
)

// A source is one file while it is read.
type source struct {
	name     string
	data     []byte
	lines    [][]rune // without line ends
	reporter *diag.Reporter
	findings int
	hidden   bool     // brackets of indexes are hidden from the parser
	foreign  bool     // it is a contract, which may have numbers for keys
	colons   bool     // colons that are missing were added
	comments []string // of a text that has got its layout
}

// newSource checks the bytes of a file. When it reports something, the file is
// not worth reading.
func newSource(f diag.File, r *diag.Reporter) (*source, bool) {
	s := &source{name: f.Name, data: f.Data, reporter: r}
	top := s.at(diag.Pos{Line: 1, Column: 1}, diag.Pos{Line: 1, Column: 1})
	if len(f.Data) > maxFileBytes {
		s.errorf(top, rules.TooLarge, "split it into several files", "the file has %d bytes, more than 1 MiB", len(f.Data))
		return s, false
	}
	s.data = bytes.TrimPrefix(s.data, []byte("\ufeff"))
	return s, s.split()
}

// split cuts the text into lines and refuses characters that YAML forbids or
// that editors and parsers count differently as line ends, for then no
// position would be right.
func (s *source) split() bool {
	line := make([]rune, 0, 80)
	s.lines = make([][]rune, 0, bytes.Count(s.data, []byte("\n"))+1)
	for i := 0; i < len(s.data); {
		if c := s.data[i]; ' ' <= c && c < 0x7f {
			line = append(line, rune(c))
			i++
			continue
		}
		r, size := utf8.DecodeRune(s.data[i:])
		from := diag.Pos{Line: len(s.lines) + 1, Column: len(line) + 1}
		at := s.at(from, diag.Pos{Line: from.Line, Column: from.Column + 1})
		switch {
		case r == utf8.RuneError && size == 1:
			s.errorf(at, rules.Encoding, "save the file as UTF-8", "the byte 0x%02x is not UTF-8", s.data[i])
			return false
		case r == '\n':
			if n := len(line); n > 0 && line[n-1] == '\r' {
				line = line[:n-1]
			}
			s.lines = append(s.lines, slices.Clone(line))
			line = line[:0]
		case r == '\r' && i+1 < len(s.data) && s.data[i+1] == '\n', r == '\t':
			line = append(line, r)
		case forbidden(r):
			hint := fmt.Sprintf(`remove it, or write it in double quotes as "\u%04x"`, r)
			if r == 0 {
				hint = "remove it"
			}
			s.errorf(at, rules.Encoding, hint, "the character %U is not allowed here", r)
			return false
		default:
			line = append(line, r)
		}
		i += size
	}
	s.lines = append(s.lines, append([]rune(nil), line...))
	return true
}

// forbidden tells control characters, line ends other than \n, and what is no
// character at all.
func forbidden(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\ufffe' || r == '\uffff'
}

// read parses the text to nodes; nil when the file is empty or no YAML.
func (s *source) read() *yaml.Node {
	dec := yaml.NewDecoder(bytes.NewReader(s.data))
	root, err := decodeNode(dec)
	if err != nil && (s.addV1Colons() || s.hideIndexes()) {
		return s.read()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		s.syntaxError(dec, err)
		return nil
	}
	second, err := decodeNode(dec)
	switch {
	case errors.Is(err, io.EOF):
	case err != nil:
		s.syntaxError(dec, err)
		return nil
	default:
		at := diag.Pos{Line: second.Line, Column: second.Column}
		s.errorf(s.at(at, diag.Pos{Line: at.Line, Column: at.Column + len("---")}), rules.SecondDocument,
			"put it into a file of its own, or drop the line ---", "a second document begins here")
	}
	if len(root.Content) == 0 {
		return nil
	}
	s.showIndexes(root)
	return root.Content[0]
}

// decodeNode reads one document. The YAML library panics on some comments;
// that is an error like any other.
func decodeNode(dec *yaml.Decoder) (n *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			n, err = nil, errConfused
		}
	}()
	n = new(yaml.Node)
	return n, dec.Decode(n)
}

var errConfused = errors.New("the structure of the file cannot be told near a comment")

// measure holds the nodes against the bounds, each counted as often as aliases
// repeat it. It stops at the first violation.
func (s *source) measure(root *yaml.Node) bool {
	m := gauge{source: s, aliases: map[*yaml.Node]bool{}, open: map[*yaml.Node]bool{}}
	return m.count(root, 1)
}

// A gauge counts what a document costs once its aliases are expanded.
type gauge struct {
	*source
	nodes, bytes int
	aliases      map[*yaml.Node]bool
	open         map[*yaml.Node]bool // the targets of aliases that are being expanded
}

func (m *gauge) count(n *yaml.Node, depth int) bool {
	at := diag.Pos{Line: n.Line, Column: n.Column}
	span := m.at(at, diag.Pos{Line: at.Line, Column: at.Column + 1})
	m.nodes++
	m.bytes += len(n.Value)
	switch {
	case depth > maxNesting:
		m.errorf(span, rules.TooDeep, "", "more than %d levels of nesting", maxNesting)
		return false
	case m.nodes > maxValues:
		m.errorf(span, rules.TooLarge, "split the file", "more than %d values", maxValues)
		return false
	case m.bytes > maxExpandedBytes:
		m.errorf(span, rules.TooLarge, "repeat less with aliases", "more than 4 MiB of text once the aliases are expanded")
		return false
	}
	if n.Kind == yaml.AliasNode {
		return m.alias(n, span, depth)
	}
	for _, child := range n.Content {
		if !m.count(child, depth+1) {
			return false
		}
	}
	return true
}

func (m *gauge) alias(n *yaml.Node, span diag.Span, depth int) bool {
	span.End.Column += len([]rune(n.Value))
	m.aliases[n] = true
	if len(m.aliases) > maxAliases {
		m.errorf(span, rules.TooManyAliases, "", "more than %d aliases", maxAliases)
		return false
	}
	if m.open[n.Alias] {
		m.errorf(span, rules.SelfAlias, "", "the alias *%s stands inside the value that it names", n.Value)
		return false
	}
	m.open[n.Alias] = true
	defer delete(m.open, n.Alias)
	return m.count(n.Alias, depth)
}

// at makes a span of this file.
func (s *source) at(start, end diag.Pos) diag.Span {
	return diag.Span{File: s.name, Start: start, End: end}
}

// errorf reports an error, up to a bound per file.
func (s *source) errorf(at diag.Span, code diag.Code, hint, format string, args ...any) {
	if s.more(at) {
		s.reporter.Errorf(at, code, hint, format, args...)
	}
}

// report adds a finding, up to a bound per file.
func (s *source) report(d diag.Diagnostic) {
	if s.more(d.Span) {
		s.reporter.Report(d)
	}
}

// more counts a finding and tells whether it is to be shown.
func (s *source) more(at diag.Span) bool {
	s.findings++
	if s.findings == maxFindings+1 {
		s.reporter.Errorf(at, rules.TooManyFindings, "mend the first ones", "more than %d findings in this file; the rest is not shown",
			maxFindings)
	}
	return s.findings <= maxFindings
}
