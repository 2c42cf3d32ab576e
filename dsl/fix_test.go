package dsl_test

import (
	"bytes"
	"testing"

	"procaas/dsl"
	"procaas/dsl/diag"
)

// TestAFixNeverHarms fixes all YAML of the repository, good and bad: what has no
// findings that can be fixed stays byte for byte, nothing gets more errors unless
// it could not be read before, and a second time there is nothing to do.
func TestAFixNeverHarms(t *testing.T) {
	t.Parallel()
	o := dsl.Options{Language: language(), Types: builtinTypes()}
	mended := 0
	for _, f := range yamlFiles(t) {
		in := []diag.File{f}
		out, fixed, left := dsl.Fix(in, o)
		if (len(fixed) == 0) != bytes.Equal(out[0].Data, f.Data) {
			t.Errorf("%s: %d fixes, but the text is now\n%s", f.Name, len(fixed), out[0].Data)
		}
		if len(fixed) == 0 {
			continue
		}
		mended++
		_, before := dsl.Load(in, o)
		if have, want := errorsIn(left), errorsIn(before); have > want && !unread(before) {
			t.Errorf("%s: from %d errors to %d:\n%s", f.Name, want, have, out[0].Data)
		}
		if again, fixed, _ := dsl.Fix(out, o); len(fixed) > 0 {
			t.Errorf("%s: fixed again, it becomes\n%s", f.Name, again[0].Data)
		}
	}
	if mended < 20 {
		t.Errorf("only %d files had something to mend, want 20", mended)
	}
	t.Logf("%d files mended", mended)
}

func errorsIn(found []diag.Diagnostic) int {
	n := 0
	for _, d := range found {
		if d.Severity == diag.Error {
			n++
		}
	}
	return n
}

// unread reports whether the text of a file could not be read: what is wrong with it
// is only found once it can.
func unread(found []diag.Diagnostic) bool {
	for _, d := range found {
		if d.Code == "PC0103" || d.Code == "PC0104" || d.Code == "PC0112" {
			return true
		}
	}
	return false
}
