package dsl_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"procaas/dsl/diag"
)

// codesInSource finds every constant of the package that is a code.
func codesInSource(t *testing.T) map[diag.Code]string {
	t.Helper()
	code := regexp.MustCompile(`^PC\d{4}$`)
	codes := make(map[diag.Code]string)
	files, err := os.ReadDir("rules")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join("rules", f.Name()), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, v := range spec.Values {
				lit, ok := v.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					continue
				}
				if s, _ := strconv.Unquote(lit.Value); code.MatchString(s) {
					if other, twice := codes[diag.Code(s)]; twice {
						t.Errorf("%s and %s are both %s", other, spec.Names[i], s)
					}
					codes[diag.Code(s)] = spec.Names[i].Name
				}
			}
			return true
		})
	}
	return codes
}

func TestEveryCodeHasARule(t *testing.T) {
	t.Parallel()
	codes := codesInSource(t)
	if len(codes) < 20 {
		t.Fatalf("found %d codes in the source, want many", len(codes))
	}
	for code, name := range codes {
		rule, ok := language().Rule(code)
		if !ok {
			t.Errorf("%s (%s) has no rule", code, name)
			continue
		}
		if rule.Title == "" || rule.Why == "" || rule.Before == "" || rule.After == "" {
			t.Errorf("the rule of %s is incomplete: %+v", code, rule)
		}
	}
	seen := make(map[diag.Code]bool)
	for _, rule := range language().Rules() {
		if codes[rule.Code] == "" {
			t.Errorf("rule %s belongs to no constant", rule.Code)
		}
		if seen[rule.Code] {
			t.Errorf("%s has two rules", rule.Code)
		}
		seen[rule.Code] = true
	}
	if _, ok := language().Rule("PC9999"); ok {
		t.Error("PC9999 is explained, want nothing")
	}
}

// TestRulesKeepTheirWord loads the examples of every rule: the one that breaks
// it gets that code and no other, the mended one gets nothing at all.
func TestRulesKeepTheirWord(t *testing.T) {
	t.Parallel()
	tooLong := map[diag.Code]string{
		"PC0101": "the file would have a mebibyte",
		"PC0119": "the file would have 200 other findings",
	}
	for _, rule := range language().Rules() {
		if tooLong[rule.Code] != "" || rule.AboutTests() {
			continue
		}
		t.Run(string(rule.Code), func(t *testing.T) {
			t.Parallel()
			_, before := load(t, rule.Before)
			if !slices.ContainsFunc(before, func(d diag.Diagnostic) bool { return d.Code == rule.Code }) {
				t.Errorf("before: the code is not found in\n%s\nhave %v", rule.Before, show(before))
			}
			others := slices.DeleteFunc(slices.Clone(before), func(d diag.Diagnostic) bool { return d.Code == rule.Code })
			if len(others) > 0 {
				t.Errorf("before: want only %s, have also %v in\n%s", rule.Code, show(others), rule.Before)
			}
			if _, after := load(t, rule.After); len(after) > 0 {
				t.Errorf("after: want nothing, have %v in\n%s", show(after), rule.After)
			}
		})
	}
}

// show writes findings in short.
func show(ds []diag.Diagnostic) string {
	var b strings.Builder
	for _, d := range ds {
		b.WriteString("\n  " + d.String() + " " + string(d.Code) + " " + d.Message)
	}
	return b.String()
}
