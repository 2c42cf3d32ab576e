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
		"bytes", "cmp", "crypto/sha256", "encoding/hex", "encoding/json", "errors", "fmt", "hash/fnv", "iter", "maps", "math",
		"math/rand/v2", "net/url", "procaas/dsl", "regexp", "slices", "strconv", "strings", "time", "unicode", "unicode/utf8",
	}
	for _, name := range []string{
		"attempt.go", "automaton.go", "await.go", "call.go", "chain.go", "change.go", "choose.go", "compensate.go", "data.go", "each.go",
		"each_saved.go", "each_view.go", "encode.go", "event.go", "extent.go", "fallback.go", "fallback_count.go",
		"fallback_service.go", "fallback_state.go", "fits.go", "gradient.go", "left.go", "leftout.go", "loop.go", "onerror.go",
		"outcome.go", "plan.go", "plan_view.go", "record.go", "ref.go", "result.go", "resume.go", "retry.go", "run.go", "saved.go",
		"seen.go", "service.go", "step.go", "story_kept.go", "text.go", "unit.go", "values.go", "verify.go", "view.go",
	} {
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
