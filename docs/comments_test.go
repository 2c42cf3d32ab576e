package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// commented are the folders whose doc comments are held to plain English.
var commented = []string{"../cmd", "../docs", "../dsl", "../engine", "../handlers", "../pipelines", "../schemas"}

// phrasesOfComments are not in doc comments.
var phrasesOfComments = []phrase{
	{`(?:^|[.:] )who\b`, "begin with the actor"},
	{`\bgives\b`, "returns, sets, has"},
	{`\bholds? \S+(?: \S+)* against\b`, "checks, compares"},
	{`\bstands?\b`, "is, is written"},
	{`\bbecomes? of\b`, "say what happens"},
	{`;`, "a full stop"},
}

// indentedCode is a line of code in a comment.
var indentedCode = regexp.MustCompile(`(?m)^\t.*$`)

// eachFile parses the Go files of the folders, tests aside, and calls do with the folder of each.
func eachFile(t *testing.T, files *token.FileSet, do func(dir string, file *ast.File)) {
	t.Helper()
	for _, folder := range commented {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err == nil {
				do(filepath.Dir(path), file)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestProseOfComments holds the comments of packages and of their exported names to plain English.
func TestProseOfComments(t *testing.T) {
	t.Parallel()
	found, files := 0, token.NewFileSet()
	eachFile(t, files, func(_ string, file *ast.File) {
		for _, doc := range docsOf(file) {
			found++
			for _, p := range paragraphs(indentedCode.ReplaceAllString(doc.Text(), "")) {
				for _, problem := range stumbles(inline.ReplaceAllString(p.text, "x"), longestSentence, slices.Concat(phrases, phrasesOfComments)) {
					t.Errorf("%s: %s", files.Position(doc.Pos()), problem)
				}
			}
		}
	})
	if found < 500 {
		t.Errorf("found %d comments, want many", found)
	}
}

// docsOf returns the comments of a file's package and of its exported names. Comments of the fields of the language are
// in the reference, which TestProseOfOthers reads.
func docsOf(file *ast.File) (docs []*ast.CommentGroup) {
	add := func(exported bool, doc *ast.CommentGroup) {
		if exported && doc != nil {
			docs = append(docs, doc)
		}
	}
	add(true, file.Doc)
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			add(d.Name.IsExported(), d.Doc)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					add(s.Name.IsExported() && !d.Lparen.IsValid(), d.Doc)
					add(s.Name.IsExported(), s.Doc)
				case *ast.ValueSpec:
					add(s.Names[0].IsExported() && !d.Lparen.IsValid(), d.Doc)
					add(s.Names[0].IsExported(), s.Doc)
				}
			}
		}
	}
	return docs
}
