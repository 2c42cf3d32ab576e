package dsl_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"procaas/dsl/diag"
)

// finding matches a diagnostic in a golden file, in any form: with its
// source, on one line, or below an expression.
var finding = regexp.MustCompile(`(?m)^[^\n]*\b(?:error|warning|advice)(?:\[| )(PC\d{4})(?:\]| |:)(.*)$`)

// TestGoldensShowEveryRule counts the diagnostics whose exact words and places are
// kept in the goldens. Each code is among them.
func TestGoldensShowEveryRule(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../testdata/dsl/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	paths = append(paths, "../testdata/cli/test_checks.txtar") // of the rules about tests
	paths = append(paths, checkFiles(t)...)                    // also those of add-ons; a finding counts once
	different := make(map[string]bool)
	byCode := make(map[diag.Code]int)
	for _, path := range paths {
		if filepath.Base(path) == "render.txt" {
			continue // its findings are made up
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range finding.FindAllStringSubmatch(string(data), -1) {
			different[m[1]+strings.TrimSpace(m[2])] = true
			byCode[diag.Code(m[1])]++
		}
	}
	tooLong := "PC0101 PC0106 PC0107 PC0119 PC0224 PC0301" // for a golden; other tests make such files
	for _, rule := range language().Rules() {
		if byCode[rule.Code] == 0 && !strings.Contains(tooLong, string(rule.Code)) {
			t.Errorf("no golden shows %s, %s", rule.Code, rule.Title)
		}
	}
	if len(different) < 300 {
		t.Errorf("have %d different diagnostics in the goldens, want 300", len(different))
	}
	t.Logf("%d different diagnostics of %d rules", len(different), len(language().Rules()))
}
