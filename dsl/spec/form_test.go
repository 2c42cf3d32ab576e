package spec

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"procaas/dsl/expr"
)

// valueOf returns the value of a file that evaluates to data, as it would stand there without expressions.
func valueOf(data any) *expr.Value {
	switch data := data.(type) {
	case map[string]any:
		v := &expr.Value{Kind: expr.ValueMap}
		for name, item := range data {
			v.Names, v.Elems = append(v.Names, expr.Key{Name: name}), append(v.Elems, valueOf(item))
		}
		return v
	case []any:
		v := &expr.Value{Kind: expr.ValueList}
		for _, item := range data {
			v.Elems = append(v.Elems, valueOf(item))
		}
		return v
	}
	return &expr.Value{Kind: expr.ValueLiteral, Scalar: data}
}

// A form fills as Decode does, whatever of a body is computed.
func TestFormFillsAsDecode(t *testing.T) {
	t.Parallel()
	s := everythingSpec()
	for _, name := range append(s.Names(), "nope") {
		for _, value := range []any{
			nil, true, 0, 3, 3.5, "", "x", "a", "b", "5s", "0s", "2026-11-21T01:02:03Z", "1MiB", "5/m", []any{}, []any{"a", "b"}, []any{1, nil},
			map[string]any{}, map[string]any{"name": "a"}, []any{map[string]any{"name": "c"}},
		} {
			data := map[string]any{name: value, "who": "a"}
			literal := valueOf(data)
			computed := &expr.Value{Kind: expr.ValueMap, Names: literal.Names}
			for range literal.Elems {
				computed.Elems = append(computed.Elems, &expr.Value{Kind: expr.ValueExpr})
			}
			var want everything
			failed := s.Decode(data, &want)
			for what, form := range map[string]*Form{"literal": s.Form(literal), "computed": s.Form(computed)} {
				for range 2 {
					var have everything
					if err := form.Fill(data, &have); fmt.Sprint(err) != fmt.Sprint(failed) {
						t.Errorf("%s %s: %v: want error %v, have %v", what, name, value, failed, err)
					} else if diff := cmp.Diff(want, have); err == nil && diff != "" {
						t.Errorf("%s %s: %v (-want +have):\n%s", what, name, value, diff)
					}
				}
			}
		}
	}
	if err := s.Form(valueOf(map[string]any{})).Fill("x", &everything{}); err == nil || err.Error() != `want a mapping, have "x"` {
		t.Errorf("have error %v", err)
	}
}

// What the owner of a struct does to its lists, mappings and pointers, no other struct shows.
func TestFormSharesNothingThatCanChange(t *testing.T) {
	t.Parallel()
	data := map[string]any{
		"any": []any{1}, "texts": map[string]any{"a": "b"}, "counts": []any{1}, "maybe": 7, "inner": map[string]any{"name": "a"}, "text": "x",
	}
	form := everythingSpec().Form(valueOf(data))
	var first, second everything
	for _, into := range []*everything{&first, &second} {
		if err := form.Fill(data, into); err != nil {
			t.Fatal(err)
		}
		if into.Text != "x" || into.List[0] != "x" || into.Counts[0] != 1 || into.Texts["a"] != "b" || *into.Maybe != 7 || into.Inner.Name != "a" {
			t.Errorf("the first has changed what the second got: %+v", into)
		}
		into.List[0], into.Counts[0], into.Texts["a"], *into.Maybe, into.Inner.Name = "y", 2, "y", 8, "y"
	}
}
