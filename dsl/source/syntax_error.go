package source

import (
	"cmp"
	"errors"
	"io"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// A failure is what the YAML library knows about a syntax error.
type failure struct {
	problem   string
	at        diag.Pos
	context   string
	contextAt diag.Pos
}

// failureOf returns where the parser failed. The library's message often has no line or that of the enclosing
// mapping. The right position is in unexported fields, which it only reads. If they are missing, it returns the
// beginning of the file.
func failureOf(dec *yaml.Decoder, err error) failure {
	f := failure{at: diag.Pos{Line: 1, Column: 1}, contextAt: diag.Pos{Line: 1, Column: 1}}
	_, f.problem, _ = strings.Cut(err.Error(), "yaml: ")
	f.problem = linePrefix.ReplaceAllString(f.problem, "")
	reader := reflect.ValueOf(dec).Elem().FieldByName("parser")
	if !reader.IsValid() || reader.Kind() != reflect.Pointer {
		return f
	}
	parser := reader.Elem().FieldByName("parser")
	if errors.Is(err, errConfused) {
		f.problem = err.Error()
		f.at = markAt(parser, "mark")
		return f
	}
	if strings.HasPrefix(f.problem, "unknown anchor") {
		f.at = markAt(reader.Elem().FieldByName("event"), "start_mark")
		return f
	}
	f.at = markAt(parser, "problem_mark")
	f.contextAt = markAt(parser, "context_mark")
	if c := parser.FieldByName("context"); c.IsValid() && c.Kind() == reflect.String {
		f.context = c.String()
	}
	return f
}

var linePrefix = regexp.MustCompile(`^line \d+: `)

// markAt reads a position from a struct of the YAML library.
func markAt(v reflect.Value, field string) diag.Pos {
	if !v.IsValid() || v.Kind() != reflect.Struct {
		return diag.Pos{Line: 1, Column: 1}
	}
	m := v.FieldByName(field)
	if !m.IsValid() || m.Kind() != reflect.Struct {
		return diag.Pos{Line: 1, Column: 1}
	}
	line, column := m.FieldByName("line"), m.FieldByName("column")
	if !line.IsValid() || !line.CanInt() || !column.IsValid() || !column.CanInt() {
		return diag.Pos{Line: 1, Column: 1}
	}
	return diag.Pos{Line: int(line.Int()) + 1, Column: int(column.Int()) + 1}
}

// syntaxError reports invalid YAML. If an expression is the likely reason, it says so.
func (s *Source) syntaxError(dec *yaml.Decoder, err error) {
	f := s.failureIn(dec, err)
	if at, ok := s.expressionNear(f.at); ok && !s.Lines.entryWithoutKey(at.Start.Line, f.at.Line) && s.blames(at.Start, f) {
		line := s.Lines[at.Start.Line-1]
		why := cmp.Or(misread(string(line[min(len(line), at.Start.Column+1):])), f.wording(s.Lines))
		s.Errorf(at, rules.ExprTrap, s.trapHint(at.Start), "YAML cannot read this expression: %s", why)
		return
	}
	if slip, ok := s.Lines.slipOf(f); ok {
		s.Errorf(s.toLineEnd(slip.at), rules.Syntax, slip.hint, "this is not YAML: %s", slip.message)
		return
	}
	d := diag.Diagnostic{Span: s.toLineEnd(f.at), Code: rules.Syntax, Message: "this is not YAML: " + f.wording(s.Lines), Hint: f.hint(s)}
	if f.context != "" && f.contextAt.Line < f.at.Line {
		d.Related = []diag.Related{{Span: s.toLineEnd(s.Lines.inside(f.contextAt)), Message: f.context}}
	}
	s.Report(d)
}

// failureIn returns where an author sees the failure.
func (s *Source) failureIn(dec *yaml.Decoder, err error) failure {
	f := failureOf(dec, err)
	if strings.Contains(f.problem, "end of stream") || strings.Contains(f.problem, "could not find expected ':'") ||
		strings.Contains(f.problem, "document indicator") {
		// The parser notices the error at the end of what began before.
		if f.context != "" {
			f.at = f.contextAt
		}
	}
	f.at = s.Lines.inside(f.at)
	return f
}

// blames reports whether an expression is the reason of a failure: with words in its place, the parser gets further.
func (s *Source) blames(tag diag.Pos, f failure) bool {
	texts := make([]string, len(s.Lines))
	for i, line := range s.Lines {
		texts[i] = string(line)
	}
	words := func(text string) string {
		return strings.Map(func(r rune) rune {
			if IsBlank(r) {
				return r
			}
			return 'x'
		}, text)
	}
	first := tag.Line - 1
	line := texts[first]
	_, behind, _ := TagBefore(line, tag.Column)
	if s.InBrackets(tag) {
		end := behind + flowEnd(line[behind:])
		texts[first] = line[:behind] + words(line[behind:end]) + line[end:]
	} else {
		texts[first] = line[:behind] + words(line[behind:])
		for l := first + 1; l < len(texts) && IndentOf(s.Lines[l]) > EntryIndent(line); l++ {
			texts[l] = words(texts[l])
		}
	}
	dec := yaml.NewDecoder(strings.NewReader(strings.Join(texts, "\n") + "\n"))
	for {
		_, err := decodeNode(dec)
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			return f.at.Before(s.failureIn(dec, err).at)
		}
	}
}

// inside moves a position after the end of the text to the end of the last non-empty line.
func (t lines) inside(p diag.Pos) diag.Pos {
	if p.Line <= len(t) && (p.Line < len(t) || len(t[p.Line-1]) > 0) {
		return p
	}
	for l := min(p.Line, len(t)); l > 0; l-- {
		if n := len(strings.TrimSpace(string(t[l-1]))); n > 0 {
			return diag.Pos{Line: l, Column: len(t[l-1]) + 1}
		}
	}
	return diag.Pos{Line: 1, Column: 1}
}

func (s *Source) toLineEnd(p diag.Pos) diag.Span {
	end := diag.Pos{Line: p.Line, Column: p.Column + 1}
	if p.Line <= len(s.Lines) {
		end.Column = max(end.Column, len(s.Lines[p.Line-1])+1)
	}
	return s.at(p, end)
}

// The tag of an expression, and the header of a block after it.
var (
	ExprTag     = regexp.MustCompile(`(?:^|[\s\[{,])(!\$)`)
	blockHeader = regexp.MustCompile(`^\s*[|>][-+0-9]*\s*(#.*)?$`)
)

// expressionNear finds an expression without a block on the line of a syntax error, or one above that reaches
// down to it.
func (s *Source) expressionNear(p diag.Pos) (diag.Span, bool) {
	indent := len(s.Lines[p.Line-1]) + 1
	for l := p.Line; l > 0 && l > p.Line-20; l-- {
		line := string(s.Lines[l-1])
		own := len(line) - len(strings.TrimLeft(line, " -"))
		if own >= indent || own == len(line) {
			continue
		}
		indent = own
		column := len(s.Lines[l-1]) + 1
		if l == p.Line {
			column = p.Column
		}
		from, to, ok := TagBefore(line, column)
		if !ok || blockHeader.MatchString(line[to:]) {
			continue
		}
		column = utf8.RuneCountInString(line[:from]) + 1
		return s.at(diag.Pos{Line: l, Column: column}, diag.Pos{Line: l, Column: len(s.Lines[l-1]) + 1}), true
	}
	return diag.Span{}, false
}

// wording returns the parser's problem in an author's terms.
func (f failure) wording(t lines) string {
	var r rune = EOF
	if line := t[f.at.Line-1]; f.at.Column <= len(line) {
		r = line[f.at.Column-1]
	}
	switch {
	case strings.Contains(f.problem, "mapping values are not allowed"):
		return "no second key can stand on this line"
	case strings.Contains(f.problem, "cannot start any token") && r == '\t', strings.Contains(f.problem, "found a tab"):
		return "a tab cannot indent"
	case strings.Contains(f.problem, "cannot start any token"):
		return "a value cannot begin with " + string(r)
	case strings.Contains(f.problem, "did not find expected key"):
		return "want a key here"
	case strings.Contains(f.problem, "did not find expected '-'"):
		return "want - and the next entry of the list here"
	case strings.Contains(f.problem, "did not find expected ',' or"):
		return "want a comma or the closing bracket here"
	case strings.Contains(f.problem, "comment or line break"):
		return "nothing may follow the mark of a block on its line"
	case strings.Contains(f.problem, "sequence entries are not allowed"):
		return "no list can begin on this line"
	case strings.Contains(f.problem, "could not find expected ':'"):
		return "want a colon after this key"
	case strings.Contains(f.problem, "end of stream") && strings.Contains(f.context, "quoted"):
		return "the quote is never closed"
	case strings.Contains(f.problem, "expected <document start>"):
		return "want the end of the file here"
	case f.directive():
		return "a directive of YAML, which begins with %, is of no use here"
	case strings.Contains(f.problem, "expected node content"):
		return "want a value here"
	}
	return f.problem
}

// directive reports whether the parser failed at a line such as %YAML 1.2.
func (f failure) directive() bool {
	return strings.Contains(f.problem, "directive") || strings.Contains(f.problem, "incompatible YAML document") ||
		strings.Contains(f.problem, "version number") || strings.Contains(f.problem, "non-alphabetical character")
}

// hint returns a remedy for common causes.
func (f failure) hint(s *Source) string {
	switch {
	case strings.Contains(f.problem, "mapping values are not allowed"):
		return "put the text in quotes, or the inner mapping on lines of its own"
	case f.wording(s.Lines) == "a tab cannot indent":
		return "indent with spaces"
	case f.directive():
		return "delete the line"
	case strings.Contains(f.problem, "expected node content"):
		return "close the bracket, or put text that begins with : or another mark in quotes"
	case strings.Contains(f.problem, "unknown anchor"):
		return "name the value with an anchor such as &name above, or put text that begins with * in quotes"
	case strings.Contains(f.problem, "cannot start any token"):
		return "put the text in quotes"
	case strings.Contains(f.problem, "did not find expected ',' or"):
		return "put text that holds : , [ ] { } or # in quotes"
	case strings.Contains(f.problem, "did not find expected"):
		return "check the indentation of this line and of the ones above"
	}
	return ""
}
