package checkpoint

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"procaas/engine/model"
)

// What is written is read as it was, each field by itself and all together: a field that is
// forgotten here would be lost in every crash.
func TestCheckpointsAreWrittenWhole(t *testing.T) {
	t.Parallel()
	for _, began := range []time.Time{{}, someTime.Add(-time.Second), someTime.Add(time.Nanosecond)} {
		empty := func() Run {
			return Run{Format: Format, Pipeline: "p", Began: began, Shared: Values{}, Handlers: []Record{}}
		}
		check := func(name string, c Run) {
			c.Format = Format // no other one is read
			have, err := Read(c.Encode())
			if clean(reflect.ValueOf(&c).Elem()); err != nil || !reflect.DeepEqual(have, c) {
				t.Errorf("%s:\nhave %s, %v\nwant %s", name, model.EncodeJSON(have), err, model.EncodeJSON(c))
			}
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
		record.Outcome, record.Status, record.Path = model.OutcomeSucceeded, http.StatusOK, "p/s/h"
		all.Handlers = []Record{record, record}
		check("all", all)
	}
}

// clean replaces what is no UTF-8, as JSON does.
func clean(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.ToValidUTF8(v.String(), "\ufffd"))
	case reflect.Pointer:
		if !v.IsNil() {
			clean(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			clean(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				clean(v.Field(i))
			}
		}
	}
}

// Checkpoints of earlier formats are read. They have times and paths in full.
func TestEarlierCheckpointsAreRead(t *testing.T) {
	t.Parallel()
	const record = `{"path":"p/s/%s","outcome":"succeeded","attempts":2,"started":"2026-11-21T05:04:03.12Z",` +
		`"finished":"2026-11-21T05:04:04.12Z","status":200,"tries":[{"began":"2026-11-21T05:04:03.12Z","error":"x"}]}`
	one, two := fmt.Sprintf(record, "one"), fmt.Sprintf(record, "two")
	want := Run{Format: Format, Pipeline: "p", Began: someTime, Shared: Values{}}
	for _, name := range []string{"one", "two"} {
		want.Handlers = append(want.Handlers, Record{
			Path: "p/s/" + name, Outcome: "succeeded", Attempts: 2, Status: 200,
			Started: someTime, Finished: someTime.Add(time.Second), Tries: []Try{{Began: someTime, Error: "x"}},
		})
	}
	for format, handlers := range map[int]string{1: one + "," + two, 2: two + "," + one} {
		text := fmt.Sprintf(`{"shared_state":{},"handlers":[%s],"began":"2026-11-21T05:04:03.12Z","pipeline":"p","v":%d}`, handlers, format)
		if have, err := Read([]byte(text)); err != nil || !reflect.DeepEqual(have, want) {
			t.Errorf("format %d: want %+v, have %+v, %v", format, want, have, err)
		}
	}
}

// Handlers are written in the reverse order, also those inside of a call, and read as they were.
func TestCheckpointsAreReadInOrder(t *testing.T) {
	t.Parallel()
	run := func(handlers ...Record) Run {
		return Run{Format: Format, Shared: Values{}, Handlers: handlers}
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

var someTime = time.Date(2026, 11, 21, 5, 4, 3, 120e6, time.UTC)

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
		return []any{someTime, someTime.Add(time.Nanosecond), someTime.AddDate(-500, 0, 0)}
	case []string:
		return []any{[]string{"a"}, []string{"a", "ü"}}
	case json.RawMessage:
		return []any{json.RawMessage(`{"a":[1,"b"]}`)}
	case Values:
		return []any{Values{{`a "`, []byte(`[1]`)}, {"b", []byte(`null`)}}}
	case []Record:
		return []any{[]Record{{Path: "a/b/c"}}, []Record{{Item: 1}, {}}}
	case []Try:
		return []any{[]Try{{Began: someTime}}, []Try{{Began: someTime, Ended: someTime, Error: "<a>"}, {Began: someTime}}}
	case *Record:
		return []any{&Record{}, &Record{Path: "a/b/c/compensate", Outcome: "x", Attempts: 2}}
	case *RunRecording:
		return []any{&RunRecording{}, &RunRecording{
			Lost: "<a>", Size: 1,
			Calls: []RecordedCall{{Ref: "a/b/c", Response: json.RawMessage(`[1]`)}},
		}}
	case *Run:
		return []any{
			&Run{Shared: Values{}, Handlers: []Record{}},
			&Run{Pipeline: "x", Inputs: json.RawMessage(`{"a":1}`), Shared: Values{}, Handlers: []Record{{Path: "x/s/h"}}},
		}
	case *Each:
		return []any{
			&Each{}, &Each{Items: json.RawMessage(`[1]`), Total: 2}, &Each{Succeeded: 2, Failed: 1, Done: "1-7"},
			&Each{Of: []Record{{Item: 1, Outcome: "x"}, {Item: 2}}},
		}
	}
	return nil
}
