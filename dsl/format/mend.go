package format

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/source"
	"procaas/dsl/syntax"
)

// Mend applies the fixes of findings with a certain remedy. It returns the files and the fixed findings, with
// the new text as their hint. Of overlapping fixes it applies the first. It skips findings for which vain
// returns true.
func Mend(files []diag.File, found []diag.Diagnostic, vain func(diag.Diagnostic) bool) (out []diag.File, done []diag.Diagnostic) {
	out = slices.Clone(files)
	for i, f := range out {
		var quiet diag.Reporter
		s, ok := source.New(f, &quiet)
		if !ok {
			continue
		}
		u := &upgrader{Source: s}
		var last diag.Pos
		for _, d := range found {
			if d.File != f.Name || vain(d) || before(d.Start, last) {
				continue
			}
			e, ok := fixOf(s, d)
			if !ok || before(e.from, last) {
				continue
			}
			u.edits = append(u.edits, e)
			done = append(done, e.told(s, d))
			last = e.to
		}
		if len(u.edits) == 0 {
			continue
		}
		out[i].Data = u.apply()
		if slices.ContainsFunc(u.edits, func(e edit) bool { return e.upgrade }) {
			if text, problems, err := Upgrade(out[i]); err == nil && len(problems) == 0 {
				out[i].Data = text
			}
		}
	}
	return out, done
}

// told returns a finding whose hint is the text that the edit leaves.
func (e edit) told(s *source.Source, d diag.Diagnostic) diag.Diagnostic {
	now, rest, many := strings.Cut(e.text, "\n")
	switch {
	case many && strings.HasSuffix(now, "|"): // the text of a block
		now, _, many = strings.Cut(now+" "+strings.TrimSpace(rest), "\n")
	case e.from == e.to && d.Start == e.from && d.End.Line == d.Start.Line:
		now += string(s.Lines[d.Start.Line-1][d.Start.Column-1 : d.End.Column-1])
	}
	d.Hint = strings.TrimSpace(now)
	if many {
		d.Hint += " …"
	}
	return d
}

// The forms of hints with a certain remedy. Two candidates or a list of names are not certain.
var (
	hintMeant  = regexp.MustCompile(`^did you mean ["']?([\w.-]+)["']?(?:\(.*\))?\?`)
	hintQuotes = regexp.MustCompile(`^put it in quotes: (".*")$`)
	hintWrite  = regexp.MustCompile(`^write (true|false|null|==|!=|and|or|not|in|shared-state|event\.payload|flow\.key|response)$`)
	hintField  = regexp.MustCompile(`^write ([a-z][a-z-]*):$`)
	hintValue  = regexp.MustCompile(`^write ((?:true|false|[0-9][0-9./]*[a-z]*)(?:, without quotes)?)$`)
	hintPair   = regexp.MustCompile(`^write (critical: false)$`)
	notWanted  = regexp.MustCompile(`^(: true)\s*(?:[,}#].*)?$`)
	hintBehind = regexp.MustCompile(`^write ([a-z][a-z-]*: [a-z]+) behind it$`)
	hintShape  = regexp.MustCompile(`^write ([a-z][a-z-]*): (\{[a-z-]+: ([0-9][0-9.]*[a-z]*)\})$`)
	hintExpr   = regexp.MustCompile(`^write (!\$ \S.*)$`)
	words      = regexp.MustCompile(`[\w-]+`)
)

// fixOf returns the edit that fixes a finding.
func fixOf(s *source.Source, d diag.Diagnostic) (edit, bool) {
	if d.Start.Line < 1 || d.End.Line > len(s.Lines) || d.Start.Column > len(s.Lines[d.Start.Line-1])+1 ||
		d.End.Column > len(s.Lines[d.End.Line-1])+1 {
		return edit{}, false
	}
	e := edit{from: d.Start, to: d.End}
	if d.Code == rules.ExprTrap {
		return fixTrap(s, d)
	}
	if d.Code == rules.Forgotten && strings.HasPrefix(d.Message, "this is text: ") {
		m := hintExpr.FindStringSubmatch(d.Hint)
		if m == nil || d.Start.Line != d.End.Line {
			return e, false
		}
		e.text = m[1]
		return e, true
	}
	if m := hintExpr.FindStringSubmatch(d.Hint); m != nil && d.Code == rules.Value && d.Start.Line == d.End.Line {
		e.text = m[1]
		return e, true
	}
	if d.Code == rules.Forgotten || d.Code == rules.Value && strings.HasPrefix(d.Hint, "write !$ ") {
		return edit{from: d.Start, to: d.Start, text: "!$ "}, true
	}
	if d.Code == rules.V1 && d.Start == d.End {
		return edit{from: d.Start, to: d.End, text: ":", upgrade: true}, true
	}
	if d.Start.Line != d.End.Line {
		return e, false
	}
	text := string(s.Lines[d.Start.Line-1][d.Start.Column-1 : d.End.Column-1])
	if m := hintMeant.FindStringSubmatch(d.Hint); m != nil {
		return e.instead(text, m[1])
	}
	if m := hintField.FindStringSubmatch(d.Hint); m != nil && d.Code == rules.UnknownField {
		e.text = m[1]
		return e, true
	}
	line := s.Lines[d.Start.Line-1]
	if m := hintPair.FindStringSubmatch(d.Hint); m != nil && d.Code == rules.UnknownField &&
		notWanted.MatchString(string(line[d.End.Column-1:])) {
		e.to.Column += len(notWanted.FindStringSubmatch(string(line[d.End.Column-1:]))[1])
		e.text = m[1]
		return e, true
	}
	if m := hintBehind.FindStringSubmatch(d.Hint); m != nil {
		e.text = text + ", " + m[1]
		if !s.InBrackets(d.Start) {
			e.text = text + "\n" + strings.Repeat(" ", source.EntryIndent(string(line))) + m[1]
		}
		return e, true
	}
	if m := hintShape.FindStringSubmatch(d.Hint); m != nil && d.Code == rules.Kind && m[3] == text && // a unit would be a guess
		strings.HasSuffix(string(line[:d.Start.Column-1]), m[1]+": ") {
		e.text = m[2]
		return e, true
	}
	if m := hintValue.FindStringSubmatch(d.Hint); m != nil && d.Code == rules.Value {
		e.text = strings.TrimSuffix(m[1], ", without quotes")
		return e, true
	}
	if m := hintQuotes.FindStringSubmatch(d.Hint); m != nil {
		e.text = m[1]
		return e, true
	}
	if m := hintWrite.FindStringSubmatch(d.Hint); m != nil {
		e.text = m[1]
		if word := words.FindString(text); word == "" && words.MatchString(m[1]) {
			e.text = spaced(s, d, m[1]) // && needs no spaces, but its replacement does
		}
		return e, !strings.ContainsAny(strings.TrimSpace(text), " \t")
	}
	return e, false
}

// spaced returns a word with spaces where it would join another one.
func spaced(s *source.Source, d diag.Diagnostic, word string) string {
	line := s.Lines[d.Start.Line-1]
	if d.Start.Column > 1 && syntax.InName(line[d.Start.Column-2]) {
		word = " " + word
	}
	if d.End.Column <= len(line) && syntax.InName(line[d.End.Column-1]) {
		word += " "
	}
	return word
}

// instead replaces a mistyped name in a text: the whole text, or its only similar word.
func (e edit) instead(text, name string) (edit, bool) {
	plain := strings.Trim(text, `'"`)
	if diag.Suggest(plain, []string{name}) == name {
		e.text = strings.Replace(text, plain, name, 1)
		return e, true
	}
	var at []int
	for _, m := range words.FindAllStringIndex(text, -1) {
		if diag.Suggest(text[m[0]:m[1]], []string{name}) == name {
			if at != nil {
				return e, false
			}
			at = m
		}
	}
	if at == nil {
		return e, false
	}
	e.text = text[:at[0]] + name + text[at[1]:]
	return e, true
}

// fixTrap makes an expression a block if YAML cuts it or cannot read it.
func fixTrap(s *source.Source, d diag.Diagnostic) (edit, bool) {
	line := s.Lines[d.Start.Line-1]
	if strings.HasPrefix(d.Hint, "put the tag before the quote") && d.Start.Line == d.End.Line {
		text := string(line[d.Start.Column-1 : d.End.Column-1])
		quote := text[:1]
		rest, ok := strings.CutPrefix(text[1:], "!$ ")
		return edit{from: d.Start, to: d.End, text: "!$ " + quote + strings.TrimLeft(rest, " ")}, ok
	}
	if strings.HasPrefix(d.Hint, "put a space after !$") {
		at := diag.Pos{Line: d.Start.Line, Column: d.Start.Column + len("!$")}
		return edit{from: at, to: at, text: " "}, true
	}
	if s.InBrackets(d.Start) {
		return fixInBrackets(s, d)
	}
	from := source.ExprTag.FindStringSubmatchIndex(string(line))
	if from == nil {
		return edit{}, false
	}
	begin := diag.Pos{Line: d.Start.Line, Column: utf8.RuneCountInString(string(line)[:from[2]]) + 1}
	e := edit{from: begin}
	own := source.EntryIndent(string(line))
	var lines []string
	last := d.Start.Line
	for text := string(line)[from[3]:]; ; last++ {
		expr, note := cutNote(strings.TrimSpace(text))
		lines = append(lines, expr)
		if note != "" {
			e.above = append(e.above, note)
		}
		if last == len(s.Lines) {
			break
		}
		text = string(s.Lines[last])
		if indent := len(text) - len(strings.TrimLeft(text, " ")); indent <= own || strings.TrimSpace(text) == "" {
			break
		}
	}
	e.to = diag.Pos{Line: last, Column: len(s.Lines[last-1]) + 1}
	e.text = "!$ |\n" + strings.Repeat(" ", own+2) + strings.Join(lines, "\n"+strings.Repeat(" ", own+2))
	return e, true
}

// cutNote separates an expression from the comment after it: a # after a space, outside all brackets. Inside
// brackets, # is the element of a list.
func cutNote(text string) (expr, note string) {
	for i := 1; i < len(text); i++ {
		if text[i] == '#' && (text[i-1] == ' ' || text[i-1] == '\t') && source.Balanced(text[:i]) {
			return strings.TrimSpace(text[:i]), text[i:]
		}
	}
	return text, ""
}

// fixInBrackets quotes an expression in a flow list or mapping.
func fixInBrackets(s *source.Source, d diag.Diagnostic) (edit, bool) {
	line := string(s.Lines[d.Start.Line-1])
	_, to, ok := source.TagBefore(line, d.Start.Column)
	if !ok {
		return edit{}, false
	}
	expr, length, ok := source.FlowExpr(line[to:])
	if !ok {
		return edit{}, false
	}
	column := utf8.RuneCountInString(line[:to]) + 1
	return edit{
		from: diag.Pos{Line: d.Start.Line, Column: column}, to: diag.Pos{Line: d.Start.Line, Column: column +
			utf8.RuneCountInString(line[to:to+length])},
		text: " " + syntax.InQuotes(expr),
	}, true
}
