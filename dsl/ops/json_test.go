package ops

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"procaas/dsl/datum"
)

func TestParseJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]any{
		`null`: nil, ` true `: true, `"a\u00e9\ud83d\ude00"`: "aé😀", `-0`: 0, `1.0`: 1.0, `1e2`: 100.0,
		`9007199254740993`: 9007199254740993, `-9223372036854775808`: math.MinInt,
		`[]`: []any{}, `{}`: map[string]any{}, `[1, "a", {"b": [null]}]`: []any{1, "a", map[string]any{"b": []any{nil}}},
		`"\\ud800"`: `\ud800`, `"` + "\uFFFD" + `"`: "\uFFFD", `"\ufffd"`: "\uFFFD",
	} {
		have, err := datum.ParseJSON([]byte(text))
		if err != nil || !reflect.DeepEqual(have, want) {
			t.Errorf("%s: want %#v, have %#v, %v", text, want, have, err)
		}
	}
}

func TestParseJSONRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                            "the document: want a JSON value, have the end of the text",
		`{`:                           "the document: want a JSON value, have the end of the text",
		`{"a": [1, 2`:                 "/a: want a JSON value, have the end of the text",
		"{\"ä\": \"ü\",\n \"ö\": x}":  "/ö: want JSON, have at line 2, column 7: invalid character 'x'",
		`[1,]`:                        "/1: want JSON, have at line 1, column 4: invalid character ']'",
		`{"a": 1,}`:                   "the document: want JSON, have at line 1, column 9: ",
		`{1: 2}`:                      "the document: want JSON, have at line 1, column 2: ",
		`nul`:                         "the document: want",
		`{"a": {"b/c": 1, "b/c": 2}}`: "/a/b~1c: want each name once, have it twice",
		`{"a": 9223372036854775808}`:  "/a: want a whole number of at most 64 bits, have 9223372036854775808",
		`[1e999]`:                     "/0: want a number that fits in 64 bits, have 1e999",
		`1 2`:                         "want nothing after the JSON value, have more at line 1, column 3",
		`{} x`:                        "want nothing after the JSON value, have more at line 1, column 4",
		`["a\u0000"]`:                 "/0: want text without U+0000",
		`{"a\u0000": 1}`:              "want text without U+0000",
		`"\ud800"`:                    "the document: want whole characters, have half of a surrogate pair",
		`["\udc00\ud800"]`:            "/0: want whole characters, have half of a surrogate pair",
		"\"\xff\"":                    "want UTF-8 text, have bytes that are none",
		strings.Repeat("[", 65):       "want at most 64 levels",
		strings.Repeat("[", 1<<20):    "want at most 64 levels",
	} {
		have, err := datum.ParseJSON([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: want the error %q, have %v, %v", text, want, have, err)
		}
	}
	if _, err := datum.ParseJSON([]byte(strings.Repeat("[", 64) + strings.Repeat("]", 64))); err != nil {
		t.Errorf("64 levels: %v", err)
	}
}

func TestFormatJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		data any
		want string
	}{
		{map[string]any{"b": 1, "a": []any{nil, true, 2.5, "x"}}, `{"a":[null,true,2.5,"x"],"b":1}`},
		{"<é\"\\\n\t\r\x01\u2028>", `"<é\"\\\n\t\r\u0001` + "\u2028" + `>"`},
		{12345678.0, `12345678`},
		{math.Copysign(0, -1), `0`},
		{1e20, `1e+20`},
		{1.5e-9, `1.5e-09`},
		{float64(1 << 53), `9.007199254740992e+15`},
		{9007199254740993, `9007199254740993`},
	} {
		if have, err := datum.FormatJSON(test.data); err != nil || string(have) != test.want {
			t.Errorf("%v: want %s, have %s, %v", test.data, test.want, have, err)
		}
	}
	for _, data := range []any{math.NaN(), math.Inf(1), datum.Secret{Name: "TOKEN"}, []any{int64(1)}} {
		if have, err := datum.FormatJSON(data); err == nil {
			t.Errorf("%v: want an error, have %s", data, have)
		}
	}
}

// anyData draws data as the engine holds it.
func anyData(t *rapid.T, depth int) any {
	kinds := 7
	if depth == 0 {
		kinds = 5
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int().Draw(t, "int")
	case 3:
		return rapid.Float64().Draw(t, "float")
	case 4:
		return strings.ReplaceAll(rapid.String().Draw(t, "string"), "\x00", "")
	case 5:
		list := []any{}
		for range rapid.IntRange(0, 4).Draw(t, "len") {
			list = append(list, anyData(t, depth-1))
		}
		return list
	}
	m := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(t, "len") {
		m[strings.ReplaceAll(rapid.String().Draw(t, "key"), "\x00", "")] = anyData(t, depth-1)
	}
	return m
}

// Both parsers agree about documents that are nearly right.
func TestBothParsersOfJSONAgree(t *testing.T) {
	t.Parallel()
	parts := []string{
		"{", "}", "[", "]", ",", ":", "\"", "a", "\\n", "\\ud83d", "null", "true", "false", "0", "-", "1", "9", ".", "e", "E", "+", " ", "\n",
		"\t",
		"\"a\"", "\"b\":", "[1]", "{}", "9223372036854775807", "1e400", "\x00", "\x7f", "é",
	}
	plain := 0
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 9).Draw(t, "parts"), ""))
		if rapid.Bool().Draw(t, "right") {
			var err error
			if text, err = datum.FormatJSON(anyData(t, 3)); err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "spaces") {
				text = []byte(strings.NewReplacer(",", " ,\n", ":", "\t: ", "[", "[ ", "}", "\r}").Replace(string(text)))
			}
		}
		have, ok := datum.ParsePlainJSON(text)
		want, err := datum.ParseAnyJSON(text)
		if ok && (err != nil || !reflect.DeepEqual(have, want)) {
			t.Fatalf("%q: want %#v, %v, have %#v", text, want, err, have)
		}
		if ok {
			plain++
		}
	})
	if plain < 10 {
		t.Errorf("want documents among them that are plain, have %d", plain)
	}
	deep := strings.Repeat("[", datum.MaxLevels) + strings.Repeat("]", datum.MaxLevels)
	if _, ok := datum.ParsePlainJSON([]byte(deep)); !ok {
		t.Error("want as many levels as the other parser takes")
	}
	if _, ok := datum.ParsePlainJSON([]byte("[" + deep + "]")); ok {
		t.Error("want no more levels than the other parser takes")
	}
}

// What is written comes back equal, and writing it again produces the same bytes.
// Only a number without a fraction may come back as a whole one.
func TestJSONComesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		data := anyData(t, 3)
		text, err := datum.FormatJSON(data)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(text) {
			t.Fatalf("%s is not JSON", text)
		}
		back, err := datum.ParseJSON(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if same, err := Equal(&Meter{}, data, back); err != nil || !same {
			t.Fatalf("%s: want %#v, have %#v, %v", text, data, back, err)
		}
		if again, err := datum.FormatJSON(back); err != nil || !bytes.Equal(text, again) {
			t.Fatalf("want %s, have %s, %v", text, again, err)
		}
	})
}

func FuzzParseJSON(f *testing.F) {
	for _, text := range []string{`{"a": [1, 2.5e3, "x\u00e9", null, true]}`, `"\ud83d\ude00"`, `[1,]`, `{"a":1,"a":2}`, ` 1 `} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		data, err := datum.ParseJSON(text)
		if again, ok := datum.ParsePlainJSON(text); ok && utf8.Valid(text) {
			if other, err := datum.ParseAnyJSON(text); err != nil || !reflect.DeepEqual(again, other) {
				t.Fatalf("%q: want %#v, %v, have %#v", text, other, err, again)
			}
		}
		if err != nil {
			return
		}
		if !json.Valid(text) {
			t.Fatalf("%q is not JSON", text)
		}
		if _, err := datum.FormatJSON(data); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
