package decode

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/source"
	"procaas/dsl/tree"
)

// styles write a text of several lines as a YAML scalar in every way that
// keeps it an expression. The lines hold words that are parted by one blank.
var styles = map[string]func(t *rapid.T, lines []string) (yaml, value string){
	"plain": func(t *rapid.T, lines []string) (string, string) {
		return breakLines(t, "x "+strings.Join(lines, " "))
	},
	"single": func(t *rapid.T, lines []string) (string, string) {
		yaml, value := breakLines(t, strings.Join(lines, " "))
		return "'" + strings.ReplaceAll(yaml, "'", "''") + "'", value
	},
	"double": func(t *rapid.T, lines []string) (string, string) {
		yaml, value := breakLines(t, strings.Join(lines, " "))
		return `"` + escapeSome(t, yaml) + `"`, value
	},
	"literal": func(t *rapid.T, lines []string) (string, string) {
		return blockOf(t, "|", lines), strings.Join(lines, "\n")
	},
	"folded": func(t *rapid.T, lines []string) (string, string) {
		return blockOf(t, ">", lines), strings.Join(lines, " ")
	},
}

// breakLines breaks a text at some of its blanks.
func breakLines(t *rapid.T, text string) (yaml, value string) {
	words := strings.Split(text, " ")
	yaml, value = words[0], words[0]
	for _, w := range words[1:] {
		switch rapid.IntRange(0, 5).Draw(t, "break") {
		case 0:
			yaml, value = yaml+"\n        "+w, value+" "+w
		case 1:
			yaml, value = yaml+"  \n\n\n      "+w, value+"\n\n"+w
		default:
			yaml, value = yaml+" "+w, value+" "+w
		}
	}
	return yaml, value
}

// escapeSome writes what must be escaped in double quotes, and some of the rest.
func escapeSome(t *rapid.T, text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r > ' ' && r < 0x100 && rapid.IntRange(0, 9).Draw(t, "escape") == 0:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > ' ' && rapid.IntRange(0, 9).Draw(t, "escape") == 0:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func blockOf(t *rapid.T, mark string, lines []string) string {
	header := mark + rapid.SampledFrom([]string{"", "-", "+", " # note", "- # note"}).Draw(t, "header")
	indent := strings.Repeat(" ", rapid.IntRange(5, 9).Draw(t, "indent"))
	return header + "\n" + indent + strings.Join(lines, "\n"+indent) + "\n"
}

func TestEveryRuneOfAnExpressionStandsWhereTheFileHasIt(t *testing.T) {
	t.Parallel()
	words := rapid.SampledFrom([]string{
		"event.payload", "and", "or", "driver-id", "==", "1.5", "кириллица", "😀", "x😀й", "日本", "(a", "b)", "é", "<=", "i", "'it'", `"q"`, `\d`,
		"#x", "ü:ü",
	})
	for name, style := range styles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				var lines []string
				for range rapid.IntRange(1, 4).Draw(t, "lines") {
					lines = append(lines, strings.Join(rapid.SliceOfN(words, 1, 6).Draw(t, "words"), " "))
				}
				if name == "plain" {
					for i := range lines {
						lines[i] = strings.ReplaceAll(lines[i], "#", "")
					}
				}
				scalar, value := style(t, lines)
				anchor := rapid.SampledFrom([]string{"!$ ", "&anchor !$ ", "!$ &anchor ", "!$   "}).Draw(t, "tag")
				text := "handlers:\n- id: a\n  set:\n    ключ: " + anchor + scalar
				doc, found := parseText(text)
				if len(found) > 0 {
					t.Fatalf("%v\n%s", found, text)
				}
				checkPlaces(t, text, doc.Handlers[0].Body.Get("ключ").Expr(), value)
			})
		})
	}
}

// TestScalarsEndWhereTheirLastRuneStands holds the short way to the place of a
// scalar against the walk along all of its runes.
func TestScalarsEndWhereTheirLastRuneStands(t *testing.T) {
	t.Parallel()
	words := rapid.SampledFrom([]string{"a", "b-c", "кириллица", "😀", "é", "it's", `q"q`, `x\y`, "don''t", "1.5"})
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"plain", "single", "double", "literal", "folded"}).Draw(t, "style")
		var lines []string
		for range rapid.IntRange(1, 2).Draw(t, "lines") {
			lines = append(lines, strings.Join(rapid.SliceOfN(words, 1, 4).Draw(t, "words"), " "))
		}
		scalar, _ := styles[name](t, lines)
		var r diag.Reporter
		s, _ := source.New(diag.File{Name: "f.yaml", Data: []byte("&x ключ:  " + scalar)}, &r)
		root := s.Read()
		if root == nil {
			t.Fatalf("%v\n%s", r.Diagnostics(), s.Data)
		}
		for _, n := range root.Content {
			if have, want := s.NodeSpan(n), s.ScalarSpan(n, s.Align(n)); have != want {
				t.Fatalf("%q stands at %v, want %v:\n%s", n.Value, have, want, s.Data)
			}
		}
	})
}

// checkPlaces fails when a rune of an expression is where the file has
// another one. White space may match other white space, and any rune for
// the escape that it was written with.
func checkPlaces(t *rapid.T, text string, e *expr.Expr, value string) {
	if e.Source != value {
		t.Fatalf("have runes %q, want %q", e.Source, value)
	}
	runes := []rune(e.Source)
	if e.At.Len() != len(runes)+1 {
		t.Fatalf("have %d places for %d runes", e.At.Len(), len(runes))
	}
	lines := strings.Split(text, "\n")
	before := diag.Pos{}
	for i, want := range runes {
		p := e.At.At(i)
		if p.Line < before.Line || p.Line == before.Line && p.Column <= before.Column {
			t.Fatalf("rune %d of %q stands at %v, not behind %v", i, e.Source, p, before)
		}
		before = p
		line := append([]rune(lines[p.Line-1]), '\n')
		have := line[p.Column-1]
		if have != want && !(source.IsBlank(have) && source.IsBlank(want)) && have != '\\' {
			t.Fatalf("rune %d of %q is %q, at %v the file has %q:\n%s", i, e.Source, want, p, have, text)
		}
	}
	last := e.At.At(len(runes) - 1)
	if end := e.At.At(len(runes)); end.Line < last.Line || end.Line == last.Line && end.Column <= last.Column {
		t.Fatalf("the end %v is not behind the last rune %v", end, last)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range goldenInputs(f) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, found := parseText(string(data))
		again, foundAgain := parseText(string(data))
		if !reflect.DeepEqual(found, foundAgain) || showDocument(doc) != showDocument(again) {
			t.Fatal("the same file was read in two ways")
		}
		lines := strings.Split(strings.TrimPrefix(string(data), "\ufeff"), "\n")
		for _, d := range found {
			checkSpan(t, lines, d.Span, d.Message)
			for _, r := range d.Related {
				checkSpan(t, lines, r.Span, r.Message)
			}
		}
		for _, v := range valuesOf(doc) {
			v.WalkExprs(func(e *expr.Expr) {
				checkSpan(t, lines, e.Span, e.Source)
				if e.At.Len() != len([]rune(e.Source))+1 {
					t.Errorf("have %d places for %q", e.At.Len(), e.Source)
				}
				for _, p := range e.At.Append(nil, 0, e.At.Len()) {
					checkSpan(t, lines, diag.Span{Start: p, End: p}, e.Source)
				}
			})
		}
	})
}

// goldenInputs cuts the inputs out of the goldens.
func goldenInputs(f *testing.F) []string {
	files, err := filepath.Glob("../../testdata/dsl/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatalf("no goldens: %v", err)
	}
	ofAddons, err := filepath.Glob("../../handlers/*/language/testdata/*.txt")
	if err != nil || len(ofAddons) == 0 {
		f.Fatalf("no goldens of add-ons: %v", err)
	}
	files = append(files, ofAddons...)
	var inputs []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for c := range strings.SplitSeq(string(text), "\n\n") {
			if _, c, ok := strings.Cut(c, "\n"); ok {
				input, _, _ := strings.Cut(c, "----\n")
				inputs = append(inputs, unescape.Replace(input))
			}
		}
	}
	return inputs
}

// checkSpan fails when a span does not lie in the file.
func checkSpan(t *testing.T, lines []string, s diag.Span, about string) {
	for _, p := range []diag.Pos{s.Start, s.End} {
		if p.Line < 1 || p.Line > len(lines) || p.Column < 1 || p.Column > len([]rune(lines[p.Line-1]))+2 {
			t.Errorf("%s lies outside of the file: %s", showSpan(s), about)
			return
		}
	}
	if s.End.Line < s.Start.Line || s.End.Line == s.Start.Line && s.End.Column < s.Start.Column {
		t.Errorf("%s ends before it begins: %s", showSpan(s), about)
	}
}

// valuesOf lists the values that may hold expressions.
func valuesOf(doc *tree.Document) []*expr.Value {
	handlers := doc.Handlers
	var values []*expr.Value
	for _, p := range doc.Pipelines {
		values = append(values, p.When, p.SharedState)
		for _, s := range p.Stages {
			handlers = append(handlers, s.Handlers...)
		}
	}
	for _, f := range doc.Flows {
		values = append(values, f.Key)
	}
	for _, h := range handlers {
		values = append(values, h.Enabled, h.Body, h.Result)
	}
	return values
}
