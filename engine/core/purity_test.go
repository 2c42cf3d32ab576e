package core_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What decides about a run must return the same for the same input, so it may not look around:
// its packages import nothing that does, start no goroutine and read no clock.
func TestCoreIsPure(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"bytes", "cmp", "crypto/sha256", "encoding/hex", "encoding/json", "errors", "fmt", "hash/fnv", "iter", "maps", "math",
		"math/bits", "math/rand/v2", "net/url", "regexp", "slices", "strconv", "strings", "time", "unicode", "unicode/utf8",
		"procaas/dsl/contracts", "procaas/dsl/datum", "procaas/dsl/diag", "procaas/dsl/expr", "procaas/dsl/spec", "procaas/dsl/tree", "procaas/dsl/urls",
		"procaas/engine/model",
		"procaas/engine/canary",
		"procaas/engine/planner",
		"procaas/engine/checkpoint",
	}
	var names []string
	for _, pattern := range []string{
		"*.go", "../model/*.go", "../planner/*.go", "../checkpoint/*.go", "../fallback/fallback.go",
		"../fallback/[cs]*.go", "../canary/[js]*.go", "../guard/gradient.go",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no such files: %v", pattern, err)
		}
		names = append(names, found...)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if path := i.Path.Value[1 : len(i.Path.Value)-1]; !slices.Contains(allowed, path) {
				t.Errorf("%s: imports %s, which the core may not", files.Position(i.Pos()), path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: starts a goroutine", files.Position(n.Pos()))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" &&
					slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "NewTimer"}, n.Sel.Name) {
					t.Errorf("%s: reads the clock", files.Position(n.Pos()))
				}
			}
			return true
		})
	}
}
