package dsl_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"procaas/dsl"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/format"
)

// v1Condition draws a condition of the first version: the lines of a list's entry
// or of a key's value, without indentation of the first.
func v1Condition(t *rapid.T, depth int) []string {
	indent := func(lines []string) []string {
		out := make([]string, len(lines))
		for i, line := range lines {
			out[i] = "  " + line
		}
		return out
	}
	noted := func(line string) string {
		if rapid.IntRange(0, 4).Draw(t, "note") == 0 {
			line += " # note " + fmt.Sprint(rapid.IntRange(0, 99).Draw(t, "n"))
		}
		return line
	}
	kind := rapid.IntRange(0, 8).Draw(t, "kind")
	if depth == 0 {
		kind = 4 + kind%5
	}
	path := "/event/payload/" + rapid.SampledFrom([]string{"a", "b", "is-c"}).Draw(t, "path")
	switch kind {
	case 0, 1:
		op := rapid.SampledFrom([]string{"and", "or"}).Draw(t, "op")
		lines := []string{noted("value#" + op + ":")}
		for range rapid.IntRange(1, 4).Draw(t, "operands") {
			inner := v1Condition(t, depth-1)
			lines = append(lines, "  - "+inner[0])
			lines = append(lines, indent(indent(inner[1:]))...)
		}
		return lines
	case 2:
		inner := v1Condition(t, depth-1)
		if strings.HasPrefix(inner[0], "value#") {
			return append([]string{noted("value#not:")}, indent(inner)...)
		}
		if expr, ok := strings.CutPrefix(inner[0], "!$ "); ok {
			inner[0] = `!$ "` + expr + `"`
		}
		return []string{`{"#not": ` + inner[0] + "}"}
	case 3:
		inner := v1Condition(t, depth-1)
		return append([]string{noted("value#not:"), "  - " + inner[0]}, indent(indent(inner[1:]))...)
	case 4:
		return []string{noted("value#xget: " + path)}
	case 5:
		return []string{"{value#xget: " + path + "}"}
	case 6:
		needle := rapid.SampledFrom([]string{
			"needle: 1", "needle#xget: /event/payload/n", "needle: !$ event.payload.n + 1",
			"needle: {k: 1}",
		}).Draw(t, "needle")
		return []string{noted("value#contains:"), "  haystack: [1, 2, {k: 1}]", "  " + needle}
	case 7:
		return []string{rapid.SampledFrom([]string{
			"true", "false",
			"{value#contains: {haystack#xget: /event/payload/list, needle: 1}}",
		}).Draw(t, "fixed")}
	}
	return []string{"!$ " + rapid.SampledFrom([]string{
		"event.payload.a or event.payload.b", "event.payload.a and not event.payload.is-c", "event.payload.a if event.payload.b else " +
			"event.payload.is-c",
		"event.payload.n > 1", "not event.payload.a", "event.payload.maybe ?? false", "event.payload.a == event.payload.b",
		"let x = event.payload.a; x or event.payload.b", "event.payload.n not in [1, 2]",
	}).Draw(t, "expr")}
}

// TestTheSecondVersionMeansTheSame evaluates a condition of the first version, and
// what Upgrade makes of it, on random data.
func TestTheSecondVersionMeansTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lines := v1Condition(t, 3)
		if !strings.HasPrefix(lines[0], "value#") {
			lines = append([]string{"value#and:", "  - " + lines[0]}, lines[1:]...)
		}
		first := "pipelines:\n- id: p\n  stages:\n  - id: s\n    handlers:\n    # of it\n    - id: h\n      enabled" +
			strings.TrimPrefix(lines[0], "value") + "\n      " + strings.Join(lines[1:], "\n      ") +
			"\n      wait: {for: 1s}\n      # end\n"
		second, found, err := format.Upgrade(diag.File{Name: "a.yaml", Data: []byte(first)})
		if err != nil || len(found) > 0 {
			t.Fatalf("%v, %v:\n%s", err, found, first)
		}
		if strings.Contains(string(second), "#not") || strings.Contains(string(second), "#xget") {
			t.Fatalf("something is left of the first version:\n%s", second)
		}
		a, b := loadCondition(first), loadCondition(string(second))
		if (a == nil) != (b == nil) {
			t.Fatalf("only one of these loads:\n%s\n%s", first, second)
		}
		if a == nil {
			return
		}
		for range 8 {
			env := drawEvent(t)
			want, err1 := a.Eval(env)
			have, err2 := b.Eval(env)
			if (err1 == nil) != (err2 == nil) || !reflect.DeepEqual(have, want) {
				t.Fatalf("of %v the first version makes %v (%v), the second %v (%v)\n%s\n%s", env, want, err1, have, err2, first, second)
			}
			if err1 != nil && func() *expr.EvalError {
				target := &expr.EvalError{}
				_ = errors.As(err1, &target)
				return target
			}().Message != func() *expr.EvalError {
				target := &expr.EvalError{}
				_ = errors.As(err2, &target)
				return target
			}().Message {
				t.Fatalf("the errors are %v and %v", err1, err2)
			}
		}
	})
}

func loadCondition(text string) *expr.Value {
	bundle, _ := dsl.Load([]diag.File{{Name: "a.yaml", Data: []byte(text)}}, dsl.Options{Language: language(), Types: testTypes()})
	if bundle == nil {
		return nil
	}
	return bundle.Handler("p/s/h").Enabled
}

func drawEvent(t *rapid.T) datum.Env {
	value := rapid.SampledFrom([]any{true, false, true, false, nil})
	return datum.Env{"event": map[string]any{"payload": map[string]any{
		"a": value.Draw(t, "a"), "b": value.Draw(t, "b"), "is-c": value.Draw(t, "c"), "n": rapid.IntRange(0, 2).Draw(t, "n"),
		"list": []any{rapid.IntRange(0, 1).Draw(t, "item")}, "maybe": value.Draw(t, "maybe"),
	}}}
}

// FuzzUpgrade upgrades anything: a text that changes has nothing left to change.
func FuzzUpgrade(f *testing.F) {
	for _, file := range yamlFiles(f) {
		f.Add(file.Data)
	}
	f.Add([]byte("handlers:\n- id: a\n  enabled#or: [true, {value#and: [false, {\"#not\": true}]}, !$ event.ok or event.yes]"))
	f.Add([]byte(twoVersions))
	f.Fuzz(func(t *testing.T, text []byte) {
		have, found, err := format.Upgrade(diag.File{Name: "a.yaml", Data: text})
		if err != nil || len(found) > 0 {
			return
		}
		again, found, err := format.Upgrade(diag.File{Name: "a.yaml", Data: have})
		if err != nil || len(found) > 0 || string(again) != string(have) {
			t.Errorf("%v, %v: upgraded again\n%s\nbecomes\n%s", err, found, have, again)
		}
	})
}
