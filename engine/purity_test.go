package engine_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"
)

// The core must give the same for the same input, so it may not look around.
func TestCoreIsPure(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"bytes", "cmp", "crypto/sha256", "encoding/hex", "encoding/json", "errors", "fmt", "hash/fnv", "maps", "math",
		"math/rand/v2", "procaas/dsl", "slices", "strconv", "strings", "time", "unicode/utf8",
	}
	for _, name := range []string{"attempt.go", "automaton.go", "checkpoint.go", "data.go",
		"fallback.go", "fallback_count.go", "fallback_service.go", "fallback_state.go", "gradient.go", "outcome.go", "plan.go", "record.go", "retry.go", "run.go", "seen.go", "verify.go"} {
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
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "NewTimer"}, n.Sel.Name) {
					t.Errorf("%s: reads the clock", files.Position(n.Pos()))
				}
			}
			return true
		})
	}
}
