package dsl

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"

	"procaas/dsl/decode"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// A suppression is a comment that suppresses findings of one code on its own line. If the comment is alone on
// its line, it applies to the next line of the file.
type suppression struct {
	diag.Span
	code     diag.Code
	from, to int // the lines to which it applies
	used     bool
	refused  bool // it tried to suppress an error
}

var (
	ignoreComment = regexp.MustCompile(`(?:^|\s)(#\s*procaas:ignore(?:\s.*)?)$`)
	ignoreForm    = regexp.MustCompile(`^#\s*procaas:ignore\s+(PC\d{4})\s+because\s+\S`)
	ignoredCode   = regexp.MustCompile(`PC\d{4}`)
	endsInBlock   = regexp.MustCompile(`[|>][-+0-9]*$`) // the text begins on the next line
)

// suppress drops findings that comments suppress. It reports comments without a reason or an effect. Errors
// stay, because files with errors cannot run.
func suppress(files []*decode.Reading, found []diag.Diagnostic) []diag.Diagnostic {
	var r diag.Reporter
	byFile := map[string][]*suppression{}
	for _, f := range files {
		if !f.Foreign && f.Root != nil && bytes.Contains(f.Data, []byte("procaas:ignore")) {
			byFile[f.Name] = suppressionsIn(f, &r)
		}
	}
	if len(byFile) == 0 {
		return found
	}
	for _, d := range found {
		if !takenBack(byFile[d.File], d) {
			r.Report(d)
		}
	}
	for _, all := range byFile {
		for _, s := range all {
			switch {
			case s.refused:
				r.Warnf(s.Span, rules.Idle, "mend the error", "%s is an error there, and errors cannot be suppressed", s.code)
			case !s.used:
				r.Warnf(s.Span, rules.Idle, "remove the comment", "the comment suppresses nothing: %s is not found there", s.code)
			}
		}
	}
	return r.Diagnostics()
}

// takenBack reports whether a comment suppresses d.
func takenBack(all []*suppression, d diag.Diagnostic) bool {
	for _, s := range all {
		if s.code != d.Code || d.Start.Line < s.from || d.Start.Line > s.to {
			continue
		}
		if d.Severity == diag.Error {
			s.refused = true
			continue
		}
		s.used = true
		return true
	}
	return false
}

// suppressionsIn returns the suppressions of a file.
func suppressionsIn(f *decode.Reading, report *diag.Reporter) []*suppression {
	if !bytes.Contains(f.Data, []byte("procaas:ignore")) {
		return nil
	}
	scalars := f.Root.Scalars(nil)
	lines := strings.Split(string(f.Data), "\n")
	var out []*suppression
	for i, line := range lines {
		line = strings.TrimSuffix(line, "\r")
		m := ignoreComment.FindStringSubmatchIndex(line)
		if m == nil {
			continue
		}
		start := diag.Pos{Line: i + 1, Column: len([]rune(line[:m[2]])) + 1}
		at := diag.Span{File: f.Name, Start: start, End: diag.Pos{Line: i + 1, Column: len([]rune(line)) + 1}}
		if slices.ContainsFunc(scalars, func(s diag.Span) bool { return s.Covers(start) }) {
			continue // text, not a comment
		}
		form := ignoreForm.FindStringSubmatch(line[m[2]:])
		if form == nil {
			code := cmp.Or(ignoredCode.FindString(line[m[2]:]), string(rules.NeedlessStage))
			report.Warnf(at, rules.NoReason, "write # procaas:ignore "+code+" because …, with the reason",
				"the comment has no code, or no reason")
			continue
		}
		s := &suppression{Span: at, code: diag.Code(form[1]), from: i + 1}
		if strings.TrimSpace(line[:m[2]]) == "" {
			s.from = nextLine(lines, i+1)
		}
		s.to = s.from
		for _, scalar := range scalars {
			block := scalar.Start.Line == s.from+1 && endsInBlock.MatchString(strings.TrimSuffix(lines[min(s.from, len(lines))-1], "\r"))
			if scalar.Start.Line == s.from || block {
				s.to = max(s.to, scalar.End.Line)
			}
		}
		out = append(out, s)
	}
	return out
}

// nextLine returns the number of the first line from lines[i] on that is not empty and not a comment.
func nextLine(lines []string, i int) int {
	for i < len(lines) {
		if text := strings.TrimSpace(lines[i]); text != "" && !strings.HasPrefix(text, "#") {
			break
		}
		i++
	}
	return i + 1
}
