package engine

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// What is written by hand must be what encoding/json writes, each field by itself
// and all together: a field that is forgotten here would be lost in every crash.
func TestCheckpointsAreWrittenWhole(t *testing.T) {
	t.Parallel()
	check := func(name string, c checkpoint) {
		if have, want := string(c.encode()), string(encodePlain(c)); have != want {
			t.Errorf("%s:\nhave %s\nwant %s", name, have, want)
		}
	}
	empty := func() checkpoint {
		return checkpoint{Shared: map[string]json.RawMessage{}, Handlers: []savedRecord{}}
	}
	check("empty", empty())
	all := empty()
	fill(t, reflect.ValueOf(&all).Elem(), check, func(set func(reflect.Value)) checkpoint {
		c := empty()
		set(reflect.ValueOf(&c).Elem())
		return c
	})
	var record savedRecord
	fill(t, reflect.ValueOf(&record).Elem(), check, func(set func(reflect.Value)) checkpoint {
		c := empty()
		c.Handlers = []savedRecord{{Path: "p/s/h"}, {}}
		set(reflect.ValueOf(&c.Handlers[1]).Elem())
		return c
	})
	all.Handlers = []savedRecord{record, record}
	check("all", all)
}

// fill sets each field of a struct to something, and checks what comes of it alone.
func fill(t *testing.T, v reflect.Value, check func(string, checkpoint), alone func(func(reflect.Value)) checkpoint) {
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
	case string, Status:
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
	case []savedRecord:
		return []any{[]savedRecord{{Path: "a/b/c"}}, []savedRecord{{Item: 1}, {}}}
	case []savedTry:
		at := time.Date(2026, 11, 21, 5, 4, 3, 120e6, time.UTC)
		return []any{[]savedTry{{Began: at}}, []savedTry{{Began: at, Ended: at, Error: "<a>"}, {Began: at}}}
	case *savedRecord:
		return []any{&savedRecord{}, &savedRecord{Path: "a/b/c/compensate", Outcome: "x", Attempts: 2}}
	case *checkpoint:
		return []any{
			&checkpoint{Shared: map[string]json.RawMessage{}, Handlers: []savedRecord{}},
			&checkpoint{Pipeline: "x", Inputs: json.RawMessage(`{"a":1}`), Shared: map[string]json.RawMessage{}, Handlers: []savedRecord{{Path: "x/s/h"}}},
		}
	case *savedEach:
		return []any{
			&savedEach{}, &savedEach{Items: json.RawMessage(`[1]`), Total: 2}, &savedEach{Succeeded: 2, Failed: 1, Done: "1-7"},
			&savedEach{Of: []savedRecord{{Item: 1, Outcome: "x"}, {Item: 2}}},
		}
	}
	return nil
}
