package dsl

import (
	"bytes"
	"slices"

	"procaas/dsl/diag"
	"procaas/dsl/format"
	"procaas/dsl/rules"
)

// maxFixRounds bounds how often what a fix has laid bare is fixed in its turn.
const maxFixRounds = 10

// Fix mends the findings whose remedy is certain: a mistyped name with one
// candidate, an expression that YAML cuts or cannot read, missing quotes, words of
// other languages. It changes nothing else in the files. A fix that does not make
// its finding go away is taken back.
//
// It returns all files, with their new texts, what was fixed, by the places in the
// old texts of each round and with the new text as hint, and what is still found.
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
			continue // again, without those
		}
		out, left = next, found
		fixed = append(fixed, done...)
	}
	return out, fixed, left
}

// fixKey names a finding, wherever it has moved to.
func fixKey(d diag.Diagnostic) [3]string { return [3]string{d.File, string(d.Code), d.Message} }

// stays reports whether a finding is still there after it was fixed: there are no
// fewer of its kind, and one stands where it would have moved to.
func stays(d diag.Diagnostic, before, after []diag.Diagnostic, added int) bool {
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

// added counts the lines that a file has more than before.
func added(before, after []diag.File, name string) int {
	at := slices.IndexFunc(before, func(f diag.File) bool { return f.Name == name })
	return bytes.Count(after[at].Data, []byte("\n")) - bytes.Count(before[at].Data, []byte("\n"))
}

// breaks reports whether a file that was YAML is none any more.
func breaks(before, after []diag.Diagnostic, file string) bool {
	broken := func(d diag.Diagnostic) bool { return d.File == file && d.Code == rules.Syntax }
	return !slices.ContainsFunc(before, broken) && slices.ContainsFunc(after, broken)
}
