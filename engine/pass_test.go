package engine_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"testing"
)

// Tests in bubbles let time pass with [pass]. One that only sleeps looks before or after what is due at that moment, by chance.
func TestTestsInBubblesWaitForWhatIsDue(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	places, found := token.NewFileSet(), 0
	for _, path := range files {
		file, err := parser.ParseFile(places, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for body := range bodiesOfBubbles(file) {
			for call := range callsOf(body) {
				switch types.ExprString(call.Fun) {
				case "pass":
					found++
				case "time.Sleep":
					t.Errorf("%s: want pass instead of time.Sleep, so that all happens that is due", places.Position(call.Pos()))
				}
			}
		}
	}
	if found < 300 {
		t.Errorf("only %d calls of pass were found: the test shows nothing", found)
	}
}

// bodiesOfBubbles yields what tests do in a bubble.
func bodiesOfBubbles(file *ast.File) func(yield func(*ast.BlockStmt) bool) {
	return func(yield func(*ast.BlockStmt) bool) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !slices.Contains([]string{"bubble", "synctest.Test"}, types.ExprString(call.Fun)) {
				return true
			}
			if body, ok := call.Args[len(call.Args)-1].(*ast.FuncLit); ok {
				yield(body.Body)
			}
			return true
		})
	}
}

// callsOf yields the calls of a body, but for those of functions in it, which may be other goroutines.
func callsOf(body *ast.BlockStmt) func(yield func(*ast.CallExpr) bool) {
	return func(yield func(*ast.CallExpr) bool) {
		ast.Inspect(body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.CallExpr:
				return yield(n)
			}
			return true
		})
	}
}
