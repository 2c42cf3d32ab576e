package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// Limits of one file. They keep a hostile file from costing more time or memory than an honest one.
const (
	maxFileBytes     = 1 << 20
	MaxNesting       = 64
	maxAliases       = 100
	MaxValues        = 200_000
	MaxExpandedBytes = 4 << 20 // of all scalars, counted as often as aliases repeat them
	maxFindings      = 200     // further findings are not listed
)

// A Source is one file while it is read.
type Source struct {
	Name     string
	Data     []byte
	Lines    lines // nil after Done
	Reporter *diag.Reporter
	Findings int
	hidden   bool     // the brackets of indexes are hidden from the parser
	escaped  int      // texts with escapes that only JSON has
	Foreign  bool     // a contract, whose keys may be numbers
	Colons   bool     // missing colons were added
	Comments []string // of a formatted text
	runes    *[]rune  // has the lines
}

// lines are the text of a file without line ends.
type lines [][]rune

// New checks the bytes of a file. It returns false if the file cannot be read.
func New(f diag.File, r *diag.Reporter) (*Source, bool) {
	s := &Source{Name: f.Name, Data: f.Data, Reporter: r}
	top := s.at(diag.Pos{Line: 1, Column: 1}, diag.Pos{Line: 1, Column: 1})
	if len(f.Data) > maxFileBytes {
		s.Errorf(top, rules.TooLarge, "split it into several files", "the file has %d bytes, more than 1 MiB", len(f.Data))
		return s, false
	}
	s.Data = bytes.TrimPrefix(s.Data, []byte("\ufeff"))
	return s, s.Split()
}

// Split splits the text into lines. It refuses characters that YAML forbids, and those that editors and parsers
// count differently as line breaks, which would make positions wrong.
func (s *Source) Split() bool {
	s.runes = runesFor(utf8.RuneCount(s.Data))
	line := *s.runes // all lines share it, so it must never grow
	s.Lines = make(lines, 0, bytes.Count(s.Data, []byte("\n"))+1)
	for i := 0; i < len(s.Data); {
		if c := s.Data[i]; ' ' <= c && c < 0x7f {
			line = append(line, rune(c))
			i++
			continue
		}
		r, size := utf8.DecodeRune(s.Data[i:])
		from := diag.Pos{Line: len(s.Lines) + 1, Column: len(line) + 1}
		at := s.at(from, diag.Pos{Line: from.Line, Column: from.Column + 1})
		switch {
		case r == utf8.RuneError && size == 1:
			s.Errorf(at, rules.Encoding, "save the file as UTF-8", "the byte 0x%02x is not UTF-8", s.Data[i])
			return false
		case r == '\n':
			if n := len(line); n > 0 && line[n-1] == '\r' {
				line = line[:n-1]
			}
			s.Lines = append(s.Lines, slices.Clip(line))
			line = line[len(line):]
		case r == '\r' && i+1 < len(s.Data) && s.Data[i+1] == '\n', r == '\t':
			line = append(line, r)
		case forbidden(r):
			hint := fmt.Sprintf(`remove it, or write it in double quotes as "\u%04x"`, r)
			if r == 0 {
				hint = "remove it"
			}
			s.Errorf(at, rules.Encoding, hint, "the character %U is not allowed here", r)
			return false
		default:
			line = append(line, r)
		}
		i += size
	}
	s.Lines = append(s.Lines, slices.Clip(line))
	return true
}

// spareRunes has the memory of lines of files that are read. It is four times their text, which adds up in a set of many files.
var spareRunes sync.Pool

// runesFor returns an empty slice for n runes.
func runesFor(n int) *[]rune {
	if spare, ok := spareRunes.Get().(*[]rune); ok && cap(*spare) >= n {
		return spare
	}
	made := make([]rune, 0, n)
	return &made
}

// Done says that all nodes are values. Nothing may look at the lines any more.
func (s *Source) Done() {
	spareRunes.Put(s.runes)
	s.runes, s.Lines = nil, nil
}

// forbidden reports whether a rune is a control character, a line break other than \n, or no character at all.
func forbidden(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\ufffe' || r == '\uffff'
}

// Read parses the text to nodes. It returns nil if the file is empty or not YAML.
func (s *Source) Read() *yaml.Node {
	dec := yaml.NewDecoder(bytes.NewReader(wholeLines(s.Data)))
	root, err := decodeNode(dec)
	if err != nil && (s.readEscapes(dec, err) || s.addV1Colons() || s.hideIndexes()) {
		return s.Read()
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
		s.Errorf(s.at(at, diag.Pos{Line: at.Line, Column: at.Column + len("---")}), rules.SecondDocument,
			"put it into a file of its own, or drop the line ---", "a second document begins here")
	}
	if len(root.Content) == 0 {
		return nil
	}
	s.showIndexes(root)
	if !s.Colons && !s.misreadings(root) {
		return nil
	}
	return root.Content[0]
}

// decodeNode reads one document. It turns a panic of the YAML library, which some comments cause, into an
// error.
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

// Measure checks the nodes against the limits. Each node counts as often as aliases repeat it. It stops at the
// first violation.
func (s *Source) Measure(root *yaml.Node) bool {
	m := gauge{Source: s, aliases: map[*yaml.Node]bool{}, open: map[*yaml.Node]bool{}}
	return m.count(root, 1)
}

// A gauge measures a document with expanded aliases.
type gauge struct {
	*Source
	nodes, bytes int
	aliases      map[*yaml.Node]bool
	open         map[*yaml.Node]bool // targets of aliases that are being expanded
}

func (m *gauge) count(n *yaml.Node, depth int) bool {
	at := diag.Pos{Line: n.Line, Column: n.Column}
	span := m.at(at, diag.Pos{Line: at.Line, Column: at.Column + 1})
	m.nodes++
	m.bytes += len(n.Value)
	switch {
	case depth > MaxNesting:
		m.Errorf(span, rules.TooDeep, "", "more than %d levels of nesting", MaxNesting)
		return false
	case m.nodes > MaxValues:
		m.Errorf(span, rules.TooLarge, "split the file", "more than %d values", MaxValues)
		return false
	case m.bytes > MaxExpandedBytes:
		m.Errorf(span, rules.TooLarge, "repeat less with aliases", "more than 4 MiB of text once the aliases are expanded")
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
		m.Errorf(span, rules.TooManyAliases, "", "more than %d aliases", maxAliases)
		return false
	}
	if m.open[n.Alias] {
		m.Errorf(span, rules.SelfAlias, "", "the alias *%s stands inside the value that it names", n.Value)
		return false
	}
	m.open[n.Alias] = true
	defer delete(m.open, n.Alias)
	return m.count(n.Alias, depth)
}

// at makes a span of this file.
func (s *Source) at(start, end diag.Pos) diag.Span {
	return diag.Span{File: s.Name, Start: start, End: end}
}

// Errorf reports an error, up to a bound per file.
func (s *Source) Errorf(at diag.Span, code diag.Code, hint, format string, args ...any) {
	if s.more(at) {
		s.Reporter.Errorf(at, code, hint, format, args...)
	}
}

// Report adds a finding, up to a bound per file.
func (s *Source) Report(d diag.Diagnostic) {
	if s.more(d.Span) {
		s.Reporter.Report(d)
	}
}

// more counts a finding and reports whether to show it.
func (s *Source) more(at diag.Span) bool {
	s.Findings++
	if s.Findings == maxFindings+1 {
		s.Reporter.Errorf(at, rules.TooManyFindings, "mend the first ones", "more than %d findings in this file; the rest is not shown",
			maxFindings)
	}
	return s.Findings <= maxFindings
}

// MarksContract reports whether a file declares itself as an OpenAPI document or a JSON Schema.
func MarksContract(n *yaml.Node) bool {
	if n.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch n.Content[i].Value {
		case "openapi", "swagger", "$schema", "$id", "$defs":
			return true
		}
	}
	return false
}
