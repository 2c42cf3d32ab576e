package decode

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/syntax"
)

// usingTemplate returns a file whose template has these expressions, and some uses of it with one argument.
func usingTemplate(expressions []string, uses int, argument string) diag.File {
	var b strings.Builder
	b.WriteString("templates:\n  - id: t\n    parameters: {x: {}}\n    handler:\n      set:\n")
	for i, e := range expressions {
		fmt.Fprintf(&b, "        a%d: !$ \"%s\"\n", i, e)
	}
	b.WriteString("pipelines:\n  - id: p\n    stages:\n      - id: s\n        handlers:\n")
	for i := range uses {
		fmt.Fprintf(&b, "          - {id: h%d, use: {template: t, with: {x: %s}}}\n", i, argument)
	}
	return diag.File{Name: "p.yaml", Data: []byte(b.String())}
}

// allocated returns the bytes that reading files allocates, and the findings.
func allocated(files ...diag.File) (uint64, []diag.Diagnostic) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	set := Read(files, nil, testTypes(), nil)
	runtime.ReadMemStats(&after)
	var found []diag.Diagnostic
	for _, r := range set.Given {
		found = append(found, r.Found...)
	}
	return after.TotalAlloc - before.TotalAlloc, found
}

func has(found []diag.Diagnostic, code diag.Code, text string) bool {
	for _, d := range found {
		if d.Code == code && strings.Contains(d.Message, text) {
			return true
		}
	}
	return false
}

// A file of 64 KiB must not make a reader allocate gigabytes: an expression is measured before it is built.
func TestExpressionsOfTemplatesAreMeasuredBeforeTheyAreBuilt(t *testing.T) {
	repeated := strings.TrimSuffix(strings.Repeat("params.x + ", 370), " + ")
	size, found := allocated(usingTemplate([]string{repeated, repeated, repeated, repeated}, 1, strings.Repeat("y", 44_000)))
	if size > 64<<20 || !has(found, rules.ExprTooLarge, "once the parameters are inserted") {
		t.Errorf("want an error and less than 64 MiB, have %d MiB, %v", size>>20, found)
	}
	few, _ := allocated(usingTemplate([]string{repeated}, 1, strings.Repeat("y", 44_000)))
	if size > 5*few {
		t.Errorf("four expressions instead of one: want about four times %d KiB, have %d KiB", few>>10, size>>10)
	}
}

// refusedUses returns what is refused in each file, without expanding anything.
func refusedUses(files ...diag.File) []string {
	var given []*Reading
	for _, f := range files {
		given = append(given, readFile(f, nil))
	}
	refused := boundUses(given, mouldsOf(given))
	out := make([]string, len(given))
	for i, r := range given {
		r.Root.Walk(func(v *expr.Value) {
			if why, ok := refused[v]; ok {
				out[i] += why + ";"
			}
		})
		out[i] = strings.TrimRight(out[i], ";")
	}
	return out
}

// Small uses of large templates are bounded for a file, and for all files together.
func TestUsesOfTemplatesAreBoundedTogether(t *testing.T) {
	t.Parallel()
	many := slices.Repeat([]string{"params.x"}, 1000)
	wide := "[" + strings.TrimSuffix(strings.Repeat("1,", 20_000), ",") + "]"
	long := "'" + strings.Repeat("a", 3900) + "' + params.x"
	for _, c := range []struct {
		name string
		file diag.File
		want string
	}{
		{"few", usingTemplate(many, 95, "1"), ""},
		{"uses", usingTemplate(many, 400, "1"), "more than 200000 values"},
		{"arguments", usingTemplate(many[:20], 1, wide), "more than 200000 values"},
		{"expressions", usingTemplate([]string{long, long, long, long}, 400, "b"), "more than 4 MiB of expressions"},
	} {
		if have := refusedUses(c.file)[0]; have != c.want {
			t.Errorf("%s: want %q, have %q", c.name, c.want, have)
		}
	}
	var files []diag.File
	for i := range 7 {
		f := usingTemplate(many, 95, "1")
		f.Name = fmt.Sprintf("p%d.yaml", i)
		files = append(files, f)
	}
	all := refusedUses(files...)
	if want := "more than 1000000 values in all files"; all[0] != "" || all[4] != "" || all[5] != want || all[6] != want {
		t.Errorf("want the last two files refused, have %q", all)
	}
	_, found := allocated(usingTemplate(many[:50], 5000, "1"))
	large := slices.DeleteFunc(found, func(d diag.Diagnostic) bool { return d.Code != rules.TooLarge })
	if len(large) != 1 || large[0].Message != "more than 200000 values once templates are expanded" {
		t.Errorf("want one finding for all uses of a file, have %v", large)
	}
}

// What is measured is what is built, to the byte. So no expression that fits is refused.
func TestMeasuredSizeOfAnExpressionIsExact(t *testing.T) {
	t.Parallel()
	for _, argument := range []string{
		"it's", `"a\tb\\c\n"`, "-2.5", "7", "null", "true", "[]", "{}", "[1, -1, [x, {a: b, 'c''d': -3}]]",
		"!$ a + 1", "!$ shared-state.a", "ä€",
		"!secret s", "{a: [], b: {}, c: {d: {}}}",
	} {
		set := Read([]diag.File{usingTemplate([]string{"[params.x, params.x] + [1]"}, 1, argument)}, nil, testTypes(), nil)
		given := map[string]*expr.Value{"x": set.Given[0].Root.Get("pipelines").Items()[0].Get("stages").Items()[0].
			Get("handlers").Items()[0].Get("use").Get("with").Get("x")}
		template := set.Given[0].Root.Get("templates").Items()[0].Get("handler").Get("set").Get("a0").Expr()
		built := set.Documents[0].Pipelines[0].Stages[0].Handlers[0].Body.Get("a0").Expr().Source
		if have := inlinedSize(template, paramsIn(template), given); have != len(built) {
			t.Errorf("with %s: want the %d bytes of %s, have %d", argument, len(built), built, have)
		}
		for enough := range syntax.MaxSource {
			if have := inlineSize(given["x"], enough); have <= enough && have != inlineSize(given["x"], syntax.MaxSource) {
				t.Fatalf("with %s: want the exact size or more than %d, have %d", argument, enough, have)
			}
		}
	}
}
