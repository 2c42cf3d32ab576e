package decode

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"procaas/dsl/diag"
	"procaas/dsl/format"
	"procaas/dsl/rules"
)

// meaning is all that a file means, however it is laid out: what was read, and
// what was found to be wrong.
func meaning(data []byte) string {
	r := readFile(diag.File{Name: "a.yaml", Data: data}, nil)
	r.decode(testTypes(), mouldsOf([]*Reading{r}), nil, false)
	var found []string
	for _, d := range r.Found {
		if d.Message != "the colon behind the operator is missing" { // it is added
			found = append(found, string(d.Code)+" "+d.Message)
		}
	}
	text := ""
	if r.doc != nil {
		text = showDocument(r.doc)
	}
	slices.Sort(found) // flow by flow their order is that of the places
	return besideMarks.ReplaceAllString(blanks.ReplaceAllString(text, " "), "$1") + strings.Join(found, "\n")
}

var (
	blanks = regexp.MustCompile(`(?:\\n|\s)+`)

	// Blanks beside these mean nothing in an expression: one that is too wide is broken there.
	besideMarks = regexp.MustCompile(` ?([][(){},:]) ?`)
)

// checkLayout lays a text out and fails when that changes what it means, or when
// doing it again changes anything.
func checkLayout(t interface {
	Fatalf(format string, args ...any)
}, text []byte,
) {
	have, found, err := format.Reformat(diag.File{Name: "a.yaml", Data: text})
	if err != nil || len(found) > 0 {
		return
	}
	if want, have := meaning(text), meaning(have); want != have {
		t.Fatalf("the meaning changes from\n%s\nto\n%s\nof\n%s", want, have, text)
	}
	again, _, err := format.Reformat(diag.File{Name: "a.yaml", Data: have})
	if err != nil || !bytes.Equal(have, again) {
		t.Fatalf("%v: laid out again\n%s\nbecomes\n%s", err, have, again)
	}
}

// corpus returns the YAML that we ship and that tests read.
func corpus(t testing.TB) []string {
	t.Helper()
	var texts []string
	for _, pattern := range []string{"../../pipelines/*/*.yaml", "../../testdata/dsl/ok/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(data))
		}
	}
	for _, rule := range rules.All() {
		texts = append(texts, rule.Before, rule.After)
	}
	return texts
}

// odd are lines and endings that people leave in files.
var odd = []string{
	"", "   ", "# note", "    # deep", "        #deeper", "x: |+\n  a\n\n", "x: |\n   a\n  \n    b", "x: >-\n    a\n    b", "x: |2\n    a",
	"x: !$ >\n     a and\n     b  ", "x: !$ \"a\n  and b\" # why", "x: 'a\n\n      b'", "x: \"a \\\n   b\\ \n  c\"", "x: a\n    b\n    # c",
	"- a", "-   - b\n    - c",
	"x: {a: 1,\n   # in\n b: [ 1,2\n ,3 ]\n}", "x: !secret   A", "x: &a\n   y: 1\nz:   *a", "x:\n\n\n  y", "x:\n- 1\n# at\n- 2", "? a\n: b",
	"...", "\ty: 1",
	"x: &a:b c", "x: {?a: 1}", "x: [?a, -]", "x: |\n  a\n   ", "x: {a:\n - b}",
	"x#xget: /a/b", "x#and:\n      - true\n      - value#not: [ true ]",
}

// wide are lists and mappings in brackets that no line can hold.
var wide = []string{
	`{first: "it's, [so]", 'second': !$ "f(x, #1) in [1, 2]", third: &a [1, {b: c}, ''], fourth: *a, fifth: !secret X, "six":7, seven: http://a/b, eight}`,
	`[first-of-many-words, "second, of", {third: [1, 2, {deep: x}], wide: !$ event.payload.total-of-all + event.payload.tip}, [fourth, []], {}, fifth: 5]`,
	`{wide: {wide: {wide: [{a: !$ event.payload.is-authorized and event.payload.city in configs.CITIES.enabled and run.id != ''}, b, c, d, e, f]}}}`,
}

func TestALayoutNeverChangesTheMeaning(t *testing.T) {
	t.Parallel()
	texts := corpus(t)
	rapid.Check(t, func(t *rapid.T) {
		lines := strings.Split(rapid.SampledFrom(texts).Draw(t, "text"), "\n")
		for range rapid.IntRange(0, 4).Draw(t, "changes") {
			at := rapid.IntRange(0, len(lines)-1).Draw(t, "line")
			line := lines[at]
			own := len(line) - len(strings.TrimLeft(line, " -"))
			switch rapid.IntRange(0, 7).Draw(t, "change") {
			case 0:
				indent := strings.Repeat(" ", max(0, own+rapid.IntRange(-2, 2).Draw(t, "indent")))
				insert := strings.ReplaceAll(rapid.SampledFrom(odd).Draw(t, "insert"), "\n", "\n"+indent)
				lines = slices.Insert(lines, at, strings.Split(indent+insert, "\n")...)
			case 1:
				lines[at] = line + rapid.SampledFrom([]string{"  ", " # note", "# no note", "\r"}).Draw(t, "end")
			case 2:
				lines[at] = strings.Replace(line, ": ", ":   ", 1)
			case 3:
				for i := range lines { // all that is indented, further
					lines[i] = strings.ReplaceAll(lines[i], "  ", "   ")
				}
			case 4:
				if strings.Contains(line, "!$ ") {
					lines[at] = line + strings.Repeat(" and event.payload['is-long'] in [1, f(x, -2)]", 4)
				}
			case 5:
				lines[at] = strings.NewReplacer("{", "{ ", "}", " }", ",", " ,").Replace(line)
			case 6:
				lines = lines[:at+1]
			case 7: // brackets that are too wide for their line
				wide := rapid.SampledFrom(wide).Draw(t, "wide")
				if open := strings.IndexAny(line, "{["); open >= 0 && line[open] == wide[0] {
					lines[at] = line[:open] + wide[:len(wide)-1] + ", " + line[open+1:]
				} else if strings.HasSuffix(line, ":") || strings.HasSuffix(line, "-") {
					lines[at] = line + " " + wide
				}
			}
		}
		checkLayout(t, []byte(strings.Join(lines, "\n")))
	})
}

// FuzzReformat lays out anything: what is YAML keeps its meaning.
func FuzzReformat(f *testing.F) {
	for _, text := range corpus(f) {
		f.Add([]byte(text))
	}
	for _, text := range odd {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkLayout(t, text) })
}

// TestWideBracketsBecomeBlocks breaks each text that is too wide, and leaves no line of
// it that could be broken further.
func TestWideBracketsBecomeBlocks(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a: " + wide[0], "- " + wide[0], wide[0], "- - " + wide[2] + " # why", "a: &b " + wide[2], "a:\n- " +
		wide[2]} {
		checkLayout(t, []byte(text))
		have, _, err := format.Reformat(diag.File{Name: "a.yaml", Data: []byte(text)})
		if err != nil {
			t.Errorf("%v for\n%s", err, text)
		}
		for line := range strings.Lines(string(have)) {
			if len(line) > format.FlowWidth && strings.ContainsAny(line, "{[") {
				t.Errorf("still wide: %s", line)
			}
		}
	}
}

// TestABrokenExpressionKeepsItsMeaning breaks an expression at its brackets, which puts blanks where none were.
func TestABrokenExpressionKeepsItsMeaning(t *testing.T) {
	t.Parallel()
	text := "pipelines:\n- id: p\n  stages:\n  - id: s\n    handlers:\n    - id: h\n      set:\n        x: !$ |\n          event.payload.tariff in "
	for _, list := range []string{wide[1], "['" + strings.Repeat("econom', 'business', '", 8) + "vip']"} {
		checkLayout(t, []byte(text+list+"\n"))
	}
}

// TestEveryShapeOfALineIsLaidOut wants no file of ours, and none of the odd
// shapes alone, to be left alone but for the one that has no layout.
func TestEveryShapeOfALineIsLaidOut(t *testing.T) {
	t.Parallel()
	for _, text := range slices.Concat(corpus(t), odd) {
		_, _, err := format.Reformat(diag.File{Name: "a.yaml", Data: []byte(text)})
		if want := strings.HasPrefix(text, "? "); errors.Is(err, format.ErrUnformatted) != want {
			t.Errorf("have %v for\n%s", err, text)
		}
	}
}
