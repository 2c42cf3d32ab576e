package transfer_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"procaas/handlers/sharding/transfer"
)

// wordsOfSQL returns all words of the texts in this package, so also each alias of its SQL.
func wordsOfSQL(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile(`\b[a-z_][a-z0-9_]*\b`)
	words := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || slices.Contains([]string{"spec.go", "refuse.go", "final.go"}, name) {
			continue // these have few statements and many sentences
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, _ := strconv.Unquote(lit.Value)
				for _, w := range word.FindAllString(text, -1) {
					words[w] = true
				}
			}
			return true
		})
	}
	for _, reserved := range []string{"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid", "uid"} {
		delete(words, reserved) // columns of the system, and one that the table has anyway
	}
	var out []string
	for w := range words {
		out = append(out, w)
	}
	slices.Sort(out)
	return out
}

// A table may have any legal name, and so may its columns: those of our aliases, reserved words, and names that must
// be quoted.
func TestAnyLegalNameMoves(t *testing.T) {
	w := newWorld(t)
	words := wordsOfSQL(t)
	if len(words) < 200 || len(words) > 1500 || !slices.Contains(words, "gone") {
		t.Fatalf("%d words were found", len(words))
	}
	if !slices.Contains(words, "b") {
		words = append(words, "b") // which once was the alias of a group
	}
	names := append(words, "Upper Case", `with "quotes"`, "it's", "größe", "100%", "$1", "a.b", strings.Repeat("x", 63))
	const table = `"Sch ""ema"."we'ird d"`
	// The first of these are aliases, the last one was an output name of the statement that deletes.
	primary := []string{"t", "k", "d", "f", "array"}
	var columns []string
	for _, n := range names {
		typ := "text"
		if slices.Contains(primary, n) {
			typ = "bigint"
		}
		columns = append(columns, pgx.Identifier{n}.Sanitize()+" "+typ)
	}
	for i := range 2 {
		w.exec(i, `create schema "Sch ""ema"`)
		w.exec(i, "create table "+table+" (uid bigint, "+strings.Join(columns, ", ")+`, primary key (uid, t, k, d, f, "array"))`)
	}
	const rows = 300 // which are three batches to delete
	w.exec(0, "insert into "+table+` (uid, t, k, d, f, "array", b, "größe")
		select 42, 1, 1, 1, 1, i, 'b' || i, 'ü' from generate_series(1, $1) i`, rows)
	spec := w.spec()
	spec.Limits.Batch = 100
	spec.Tables = []transfer.Table{{Name: `Sch "ema.we'ird d`, Columns: []string{"uid"}, Key: []string{"42"}}}
	changed := false
	spec.Hook = func(at string) error {
		if at == "analyze" && !changed {
			changed = true
			w.exec(0, "update "+table+` set "größe" = 'ß', "Upper Case" = 'A', "with ""quotes""" = 'q', b = null where "array" % 10 = 0`)
			w.exec(0, "delete from "+table+` where "array" % 10 = 1`)
			w.exec(0, "insert into "+table+` (uid, t, k, d, f, "array", "select") values (42, 1, 1, 1, 1, 9999, 'new')`)
		}
		return nil
	}
	if _, err := w.transfer(context.WithoutCancel(t.Context()), spec); err != nil {
		t.Fatal(err)
	}
	if n := w.count(0, "select count(*) from "+table); n != 0 || !changed {
		t.Errorf("%d rows are left on the source, changed %v", n, changed)
	}
	if n := w.count(1, "select count(*) from "+table+` where "array" % 10 = 0 and "größe" = 'ß' or "select" = 'new'`); n != rows/10+1 {
		t.Errorf("%d changed rows have arrived, want %d", n, rows/10+1)
	}
	if n := w.count(1, "select count(*) from "+table); n != rows-rows/10+1 {
		t.Errorf("%d rows have arrived, want %d", n, rows-rows/10+1)
	}
}
