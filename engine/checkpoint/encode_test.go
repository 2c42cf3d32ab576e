package checkpoint

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"procaas/engine/model"
)

// What is written by hand must be what encoding/json writes, each field by itself
// and all together: a field that is forgotten here would be lost in every crash.
func TestCheckpointsAreWrittenWhole(t *testing.T) {
	t.Parallel()
	check := func(name string, c Run) {
		written := c
		written.Handlers = slices.Clone(c.Handlers)
		slices.Reverse(written.Handlers)
		if have, want := string(c.Encode()), string(model.EncodeJSON(written)); have != want {
			t.Errorf("%s:\nhave %s\nwant %s", name, have, want)
		}
	}
	empty := func() Run {
		return Run{Shared: map[string]json.RawMessage{}, Handlers: []Record{}}
	}
	check("empty", empty())
	all := empty()
	fill(t, reflect.ValueOf(&all).Elem(), check, func(set func(reflect.Value)) Run {
		c := empty()
		set(reflect.ValueOf(&c).Elem())
		return c
	})
	var record Record
	fill(t, reflect.ValueOf(&record).Elem(), check, func(set func(reflect.Value)) Run {
		c := empty()
		c.Handlers = []Record{{Path: "p/s/h"}, {}}
		set(reflect.ValueOf(&c.Handlers[1]).Elem())
		return c
	})
	all.Handlers = []Record{record, record}
	check("all", all)
}

// Handlers are written in the reverse order, also those inside of a call, and read as they were.
func TestCheckpointsAreReadInOrder(t *testing.T) {
	t.Parallel()
	run := func(handlers ...Record) Run {
		return Run{Format: Format, Shared: map[string]json.RawMessage{}, Handlers: handlers}
	}
	inner := run(Record{Path: "b/s/first"}, Record{Path: "b/s/second"})
	want := run(Record{Path: "a/s/first"}, Record{Path: "a/s/second", Call: &inner}, Record{Path: "a/s/third"})
	have, err := Read(want.Encode())
	if err != nil || !reflect.DeepEqual(have, want) {
		t.Errorf("want %+v, have %+v, %v", want, have, err)
	}
}

// fill sets each field of a struct to something, and checks what comes of it alone.
func fill(t *testing.T, v reflect.Value, check func(string, Run), alone func(func(reflect.Value)) Run) {
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		for _, value := range valuesOf(v.Field(i).Type()) {
			check(name, alone(func(s reflect.Value) { s.Field(i).Set(reflect.ValueOf(value).Convert(s.Field(i).Type())) }))
			v.Field(i).Set(reflect.ValueOf(value).Convert(v.Field(i).Type()))
		}
		if v.Field(i).IsZero() {
			t.Errorf("the test has no value for field %s of type %s", name, v.Field(i).Type())
		}
	}
}

func valuesOf(t reflect.Type) []any {
	switch reflect.Zero(t).Interface().(type) {
	case string, model.Status:
		return []any{"plain", "<\"a\\\n\u2028\x7fö>\xff"}
	case int:
		return []any{-1, 1 << 40}
	case time.Duration:
		return []any{time.Second}
	case bool:
		return []any{true}
	case time.Time:
		return []any{time.Date(2026, 11, 21, 5, 4, 3, 120e6, time.UTC)}
	case []string:
		return []any{[]string{"a"}, []string{"a", "ü"}}
	case json.RawMessage:
		return []any{json.RawMessage(`{"a":[1,"b"]}`)}
	case map[string]json.RawMessage:
		return []any{map[string]json.RawMessage{"b": []byte(`null`), "a \"": []byte(`[1]`)}}
	case []Record:
		return []any{[]Record{{Path: "a/b/c"}}, []Record{{Item: 1}, {}}}
	case []Try:
		at := time.Date(2026, 11, 21, 5, 4, 3, 120e6, time.UTC)
		return []any{[]Try{{Began: at}}, []Try{{Began: at, Ended: at, Error: "<a>"}, {Began: at}}}
	case *Record:
		return []any{&Record{}, &Record{Path: "a/b/c/compensate", Outcome: "x", Attempts: 2}}
	case *Run:
		return []any{
			&Run{Shared: map[string]json.RawMessage{}, Handlers: []Record{}},
			&Run{Pipeline: "x", Inputs: json.RawMessage(`{"a":1}`), Shared: map[string]json.RawMessage{}, Handlers: []Record{{Path: "x/s/h"}}},
		}
	case *Each:
		return []any{
			&Each{}, &Each{Items: json.RawMessage(`[1]`), Total: 2}, &Each{Succeeded: 2, Failed: 1, Done: "1-7"},
			&Each{Of: []Record{{Item: 1, Outcome: "x"}, {Item: 2}}},
		}
	}
	return nil
}
