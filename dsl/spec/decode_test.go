package spec

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"procaas/dsl/datum"
)

func TestDecodeFillsEveryKind(t *testing.T) {
	t.Parallel()
	seven := 7
	for _, c := range []struct {
		data map[string]any
		want func(*everything)
	}{
		{nil, func(*everything) {}},
		{map[string]any{"text": nil, "wait": nil, "any": nil}, func(*everything) {}},
		{map[string]any{"text": "x", "one": "b", "flag": false}, func(e *everything) { e.Text, e.One, e.Flag = "x", "b", false }},
		{map[string]any{"small": 3.0, "large": 1 << 60, "share": 3}, func(e *everything) { e.Small, e.Large, e.Share = 3, 1<<60, 3 }},
		{map[string]any{"wait": "1d12h", "at": "2026-11-21T01:02:03Z"}, func(e *everything) {
			e.Wait, e.At = 36*time.Hour, time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC)
		}},
		{map[string]any{"size": 5, "limit": "5/m"}, func(e *everything) { e.Size, e.Limit = 5, datum.Rate{Count: 5, Per: time.Minute} }},
		{map[string]any{"who": "a", "list": []any{}}, func(e *everything) { e.Who, e.List = Names{"a"}, []string{} }},
		{map[string]any{"who": []any{"a", "b"}, "counts": []any{1, 2.0}}, func(e *everything) {
			e.Who, e.Counts = Names{"a", "b"},
				[]int{1, 2}
		}},
		{map[string]any{"any": []any{nil, 1}, "map": map[string]any{"x": nil}}, func(e *everything) {
			e.Any, e.Map = []any{nil, 1}, map[string]any{"x": nil}
		}},
		{map[string]any{"texts": map[string]any{"a": "b"}, "lists": map[string]any{"a": []any{"b"}}}, func(e *everything) {
			e.Texts, e.Lists = map[string]string{"a": "b"}, map[string][]string{"a": {"b"}}
		}},
		{map[string]any{
			"inner":  map[string]any{"name": "a", "again": map[string]any{"name": "b"}},
			"inners": []any{map[string]any{"name": "c"}}, "maybe": 7,
		}, func(e *everything) {
			e.Inner, e.Inners, e.Maybe = &inner{"a", &inner{"b", nil}}, []inner{{Name: "c"}}, &seven
		}},
	} {
		want := everything{
			Text: "none", Flag: true, Share: 0.5, Wait: 5 * time.Second, Size: 1 << 20,
			Limit: datum.Rate{Count: 10, Per: time.Second}, List: []string{"x", "y"},
		}
		c.want(&want)
		have := everything{Text: "left over", Maybe: &seven}
		if err := everythingSpec().Decode(any(c.data), &have); err != nil {
			t.Errorf("%v: %v", c.data, err)
			continue
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%v (-want +have):\n%s", c.data, diff)
		}
	}
}

func TestDecodeSaysWhatItWants(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		data any
		want string
	}{
		{"text", 5, `field "text": want text, have 5`},
		{"one", "d", `field "one": want a, b or c, have "d"`},
		{"flag", "true", `field "flag": want true or false, have "true"`},
		{"small", "3", `field "small": want a whole number, have "3"`},
		{"small", 3.5, `field "small": want a whole number, have 3.5`},
		{"small", 0, `field "small": want 1 or more, have 0`},
		{"small", 10.0, `field "small": want 9 or less, have 10`},
		{"large", 1e30, `field "large": want a whole number, have 1e+30`},
		{"share", true, `field "share": want a number, have true`},
		{"wait", "5", `field "wait": want a duration such as 300ms or 5s, have "5"`},
		{"wait", 5, `field "wait": want a duration such as 300ms or 5s, have 5`},
		{"wait", "0s", `field "wait": want 1ms or more, have 0s`},
		{"at", "today", `field "at": want a time such as 2026-01-31T09:30:00Z, have "today"`},
		{"size", "1XB", `field "size": want a size such as 64KiB or 1MiB, have "1XB"`},
		{"size", "2GiB", `field "size": want 1GiB or less, have 2GiB`},
		{"size", -1, `field "size": want a size such as 64KiB or 1MiB, have -1`},
		{"limit", "0/s", `field "limit": want a rate above 0, have "0/s"`},
		{"who", 5, `field "who": want a name or a list of names, have 5`},
		{"who", []any{"a", 5}, `field "who[1]": want text, have 5`},
		{"list", "a", `field "list": want a list, have "a"`},
		{"counts", []any{1, nil}, `field "counts[1]": want a whole number, have null`},
		{"map", []any{}, `field "map": want a mapping, have a list`},
		{"texts", map[string]any{"b": 1, "a": 2}, `field "texts.a": want text, have 2`},
		{"lists", map[string]any{"a": []any{"b", true}}, `field "lists.a[1]": want text, have true`},
		{"inner", "x", `field "inner": want a mapping, have "x"`},
		{"inner", map[string]any{}, `field "inner.name": required, but it is not given or null`},
		{
			"inner",
			map[string]any{"name": "a", "again": map[string]any{"name": "b", "x": 1}},
			`field "inner.again.x": unknown; the fields are name, again`,
		},
		{
			"inners",
			[]any{map[string]any{"name": "not ok"}},
			`field "inners[0].name": want a name of up to 64 letters a-z, digits, - and _, beginning with a letter or digit, have "not ok"`,
		},
		{"text", datum.Secret{Name: "S"}, `field "text": want text, have a secret`},
		{"nope", 1, `field "nope": unknown; the fields are ` + strings.Join(everythingSpec().Names(), ", ")},
	} {
		err := everythingSpec().Decode(map[string]any{c.name: c.data}, &everything{})
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %v: have error %v, want %s", c.name, c.data, err, c.want)
		}
	}
	if err := everythingSpec().Decode("x", &everything{}); err == nil || err.Error() != `want a mapping, have "x"` {
		t.Errorf("have error %v", err)
	}
}

func TestDecodeLeavesSecretsAlone(t *testing.T) {
	t.Parallel()
	var have everything
	if err := everythingSpec().Decode(map[string]any{"any": datum.Secret{Name: "b"}}, &have); err != nil ||
		have.Any != any(datum.Secret{Name: "b"}) {
		t.Errorf("have %v, %v", have.Any, err)
	}
}
