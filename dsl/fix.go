package dsl

import (
	"bytes"
	"slices"

	"procaas/dsl/diag"
	"procaas/dsl/format"
	"procaas/dsl/rules"
)

// maxFixRounds limits how many rounds of fixes follow each other. A fix can reveal another finding that can be
// fixed.
const maxFixRounds = 10

// Fix repairs findings with a single possible remedy: a mistyped name with one candidate, an expression that
// YAML cuts or cannot read, missing quotes, words of other languages. It changes nothing else. It undoes a fix
// whose finding stays.
//
// It returns all files with their new texts, the fixed findings and the remaining ones. Positions of fixed
// findings refer to the text before their round. Their hint is the new text.
func Fix(files []diag.File, o Options) (out []diag.File, fixed, left []diag.Diagnostic) {
	out = slices.Clone(files)
	_, left = Load(out, o)
	vain := map[[3]string]bool{}
	for range maxFixRounds {
		next, done := format.Mend(out, left, func(d diag.Diagnostic) bool { return vain[fixKey(d)] })
		if len(done) == 0 {
			break
		}
		_, found := Load(next, o)
		failed := false
		for _, d := range done {
			if stays(d, left, found, added(out, next, d.File)) || breaks(left, found, d.File) {
				vain[fixKey(d)], failed = true, true
			}
		}
		if failed {
			continue // again, without these fixes
		}
		out, left = next, found
		fixed = append(fixed, done...)
	}
	return out, fixed, left
}

// fixKey identifies a finding independently of its position.
func fixKey(d diag.Diagnostic) [3]string { return [3]string{d.File, string(d.Code), d.Message} }

// stays reports whether a finding remains after its fix: its kind is not rarer, and one is at the position that
// the fix moved it to. Quotes around an expression change what YAML says of it, so there the words do not count.
func stays(d diag.Diagnostic, before, after []diag.Diagnostic, added int) bool {
	if d.Code == rules.ExprTrap {
		return slices.ContainsFunc(after, func(other diag.Diagnostic) bool {
			return other.File == d.File && other.Code == d.Code && other.Start == d.Start
		})
	}
	was, is, here := 0, 0, false
	for _, other := range before {
		if fixKey(other) == fixKey(d) {
			was++
		}
	}
	for _, other := range after {
		if fixKey(other) == fixKey(d) {
			is++
			here = here || other.Start.Line >= d.Start.Line && other.Start.Line <= d.Start.Line+max(0, added)
		}
	}
	return here && is >= was
}

// added returns how many lines a file has gained.
func added(before, after []diag.File, name string) int {
	at := slices.IndexFunc(before, func(f diag.File) bool { return f.Name == name })
	return bytes.Count(after[at].Data, []byte("\n")) - bytes.Count(before[at].Data, []byte("\n"))
}

// breaks reports whether a file that was valid YAML no longer is.
func breaks(before, after []diag.Diagnostic, file string) bool {
	broken := func(d diag.Diagnostic) bool { return d.File == file && d.Code == rules.Syntax }
	return !slices.ContainsFunc(before, broken) && slices.ContainsFunc(after, broken)
}
