package contracts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"procaas/dsl/diag"
	"procaas/dsl/source"
)

// contractOf makes the contract of a schema.
func contractOf(t *testing.T, schema string) *Contract {
	t.Helper()
	var r diag.Reporter
	s, _ := source.New(diag.File{Name: "p.yaml", Data: []byte(schema)}, &r)
	c := New(nil, nil, &r).Of(s.Value(s.Read()), "the payload of p")
	if c == nil {
		t.Fatal(r.Found)
	}
	return c
}

// nested is a list in a list, so many levels deep.
func nested(levels int) any {
	v := any(nil)
	for range levels {
		v = []any{v}
	}
	return v
}

// A short text must not be expensive with any schema; one that is long is allowed more.
func TestChecksOfContractsAreBounded(t *testing.T) {
	t.Parallel()
	const doubling = "{anyOf: [{type: array, items: {$ref: '#'}}, {type: array, items: {$ref: '#'}, minItems: 0}]}"
	long := make([]any, 100_000)
	for i := range long {
		long[i] = i
	}
	for _, c := range []struct {
		name, schema string
		data         any
		bounded      bool // it takes too long
		fits         bool
	}{
		{"alternatives that double", doubling, nested(60), true, false},
		{"a few levels of them", doubling, nested(10), false, false},
		{"one of them", strings.ReplaceAll(doubling, "anyOf", "oneOf"), nested(60), true, false},
		{
			"not of not", "{not: {anyOf: [{type: array, items: {$ref: '#'}}, {type: array, items: {$ref: '#'}, minItems: 0}]}}", nested(60), true,
			false,
		},
		{"a large pattern", "{pattern: '^(x?){200}$'}", strings.Repeat("x", 1<<20), true, false},
		{"a pattern of a long text", "{pattern: '^[a-z]+$'}", strings.Repeat("x", 1<<20), false, true},
		{"a long list", "{items: {type: integer, minimum: 0, maximum: 1000000}}", long, false, true},
		{"elements that differ", "{uniqueItems: true}", long, false, true},
		{"a long list that is wrong", "{items: {type: string}}", long, false, false},
	} {
		err := contractOf(t, c.schema).Check(c.data)
		var misfit *Error
		switch {
		case c.fits && err != nil:
			t.Errorf("%s: want it to fit, have %.200s", c.name, err)
		case !c.fits && !errors.As(err, &misfit):
			t.Errorf("%s: want what is wrong, have %v", c.name, err)
		case !c.fits && c.bounded != (misfit.Faults[0].Message == errCheckSteps.Error()):
			t.Errorf("%s: too long is %v, have %.200s", c.name, c.bounded, err)
		}
	}
}

// Whoever sent the data may leave while it is checked.
func TestCheckOfAContractEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	list := slices.Repeat([]any{1}, 50_000)
	if err := contractOf(t, "{items: {type: integer}}").CheckContext(ctx, list); !errors.Is(err, context.Canceled) {
		t.Errorf("want the check to end with its context, have %v", err)
	}
}

// However much is wrong, the first faults are listed, in order and always the same.
func TestFaultsOfAContractAreTheFirstOnes(t *testing.T) {
	t.Parallel()
	m := map[string]any{}
	for i := range 20_000 {
		m[fmt.Sprintf("n%05d", i)] = i
	}
	err := contractOf(t, "{additionalProperties: false, properties: {n00000: {type: integer}}}").Check(m)
	if want := "the payload of p: n00001: is not allowed there (and 9 more)"; fmt.Sprint(err) != want {
		t.Errorf("want %s, have %v", want, err)
	}
}

// A format is checked, also in a reply: the message says where, and what is wanted.
func TestFormatsAreChecked(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]string{
		"date-time": "31.1.2026", "date": "2026-02-30", "time": "noon", "duration": "90 minutes", "uuid": "f81d", "email": "ann", "ipv4": "1.2.3",
		"ipv6": "::g", "uri": "a b", "hostname": "-a", "json-pointer": "a", "regex": "[", "semver": "1.2",
	} {
		c := contractOf(t, "{properties: {at: {format: "+name+"}}}")
		if err := c.Check(map[string]any{"at": formats[name]}); err != nil {
			t.Errorf("%s: the example does not fit: %v", name, err)
		}
		err := c.Check(map[string]any{"at": wrong})
		if err == nil || !strings.Contains(err.Error(), "at: ") || !strings.Contains(err.Error(), formats[name]) && name != "regex" {
			t.Errorf("%s: want the path and an example, have %v", name, err)
		}
	}
	for name, example := range formats {
		if err := contractOf(t, "{format: "+name+"}").Check(example); err != nil {
			t.Errorf("%s: the example does not fit: %v", name, err)
		}
	}
	for _, name := range []string{"int32", "uri-template"} {
		if err := contractOf(t, "{format: "+name+"}").Check("{#a}"); err != nil {
			t.Errorf("want the format %s to be a comment, have %v", name, err)
		}
	}
}
