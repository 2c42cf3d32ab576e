package dsl_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/render"
)

// FuzzLoad loads anything, as two files, so that merging is fuzzed too. Loading
// never panics, returns a bundle exactly when there are no errors, points into
// the files, and returns the same again.
func FuzzLoad(f *testing.F) {
	for _, path := range okFiles(f) {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, []byte("handlers: [{id: x, into: new-order-created/pause, critical: false, wait: {for: 1s}}]"))
	}
	for _, path := range checkFiles(f) {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for part := range strings.SplitSeq(string(data), "\nload\n") {
			input, _, _ := strings.Cut(part, "\n----\n")
			f.Add([]byte(input), []byte(nil))
		}
	}
	for _, rule := range language().Rules() {
		if files := splitFiles(rule.Before); len(files) == 2 { // a service and its OpenAPI document
			flow := bytes.ReplaceAll(files[0].Data, []byte(files[1].Name), []byte("two.yaml"))
			f.Add(flow, files[1].Data)
		}
	}
	f.Add([]byte("events: [{type: p, payload: two.yaml}]\npipelines: [{id: p, stages: [{id: s, handlers: [{id: h, wait: {for: !$ event.payload.a.b}}]}]}]"),
		[]byte("type: object\nproperties: {a: {$ref: '#'}, b: {anyOf: [{type: string}, {$ref: '#/properties/a'}]}}"))
	f.Add([]byte("schemas: {a: {allOf: [{$ref: b}, {type: object}]}, b: {oneOf: [{$ref: a}, {const: 1}], properties: {x: {enum: [1, null]}}}}"), []byte("$defs: {}"))
	types, builtin := testTypes(), builtinTypes()
	f.Fuzz(func(t *testing.T, one, two []byte) {
		files := []diag.File{{Name: "one.yaml", Data: one}, {Name: "two.yaml", Data: two}}
		bundle, found := dsl.Load(files, dsl.Options{Language: language(), Types: types})
		if (bundle == nil) != diag.HasErrors(found) {
			t.Fatalf("have bundle %v with %s", bundle != nil, show(found))
		}
		for _, d := range found {
			checkInside(t, files, d.Span)
			for _, r := range d.Related {
				checkInside(t, files, r.Span)
			}
			if _, ok := language().Rule(d.Code); !ok {
				t.Errorf("%s is not explained", d.Code)
			}
		}
		var first, second bytes.Buffer
		if err := render.Write(&first, render.Text, files, found, true); err != nil {
			t.Fatal(err)
		}
		dsl.Load(files, dsl.Options{Language: language(), Types: builtin})
		_, again := dsl.Load(files, dsl.Options{Language: language(), Types: types})
		if err := render.Write(&second, render.Text, files, again, true); err != nil {
			t.Fatal(err)
		}
		if first.String() != second.String() {
			t.Errorf("loading again gives other findings:\n%s\nthen\n%s", first.String(), second.String())
		}
	})
}

// checkInside wants a span inside its file, its end not before its start.
func checkInside(t *testing.T, files []diag.File, at diag.Span) {
	t.Helper()
	for _, f := range files {
		if f.Name != at.File {
			continue
		}
		lines := bytes.Split(f.Data, []byte("\n"))
		for _, p := range []diag.Pos{at.Start, at.End} {
			if p.Line < 1 || p.Line > len(lines)+1 || p.Column < 1 {
				t.Errorf("%v is outside of its file of %d lines", at, len(lines))
				continue
			}
			if p.Line <= len(lines) && p.Column > len([]rune(string(lines[p.Line-1])))+2 {
				t.Errorf("%v is behind the end of its line", at)
			}
		}
		if at.End.Line < at.Start.Line || at.End.Line == at.Start.Line && at.End.Column < at.Start.Column {
			t.Errorf("%v ends before it starts", at)
		}
		return
	}
	t.Errorf("%v is in no file", at)
}
