package model

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"procaas/dsl/datum"
)

// maxDepth bounds the levels of a value in a checkpoint. JSON with more than 64 levels could not be
// read again.
const maxDepth = 60

// EncodeData encodes a value that a run keeps. Numbers keep their kinds. It refuses values that cannot be read back
// unchanged.
func EncodeData(v any) (json.RawMessage, error) {
	if err := CheckData(v); err != nil {
		return nil, err
	}
	return datum.FormatKinds(v)
}

// CheckData returns what is wrong with a value, or nil. Of several faults it always returns the
// same one.
func CheckData(v any) error {
	if isData(v, 0) {
		return nil
	}
	return faultOf(v, 0)
}

// isData reports quickly whether a value can be kept.
func isData(v any, depth int) bool {
	if depth > maxDepth {
		return false
	}
	switch v := v.(type) {
	case []any:
		return !slices.ContainsFunc(v, func(item any) bool { return !isData(item, depth+1) })
	case map[string]any:
		for k, item := range v {
			if checkText(k) != nil || !isData(item, depth+1) {
				return false
			}
		}
		return true
	}
	return faultOf(v, depth) == nil
}

func faultOf(v any, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("want at most %d levels of lists and mappings, have more", maxDepth)
	}
	switch v := v.(type) {
	case nil, bool, int:
		return nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("want a finite number, have %v", v)
		}
		return nil
	case string:
		return checkText(v)
	case []any:
		for i, item := range v {
			if err := faultOf(item, depth+1); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
		return nil
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			err := checkText(k)
			if err == nil {
				err = faultOf(v[k], depth+1)
			}
			if err != nil {
				return fmt.Errorf("[%q]: %w", k, err)
			}
		}
		return nil
	}
	return fmt.Errorf("want null, a boolean, a number, a string, a list or a mapping, have %s", KindOf(v))
}

// StateSize is how much a name of the shared state adds to its size as JSON.
func StateSize(name string, raw json.RawMessage) int { return len(`"":,`) + len(name) + len(raw) }

// StateError says that the shared state is over max-state. It names the largest values.
func StateError(state map[string]json.RawMessage, limit int) error {
	size := len("{}")
	for name, raw := range state {
		size += StateSize(name, raw)
	}
	names := slices.SortedFunc(maps.Keys(state), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(state[b]), len(state[a])), cmp.Compare(a, b))
	})
	var largest []string
	for _, name := range names[:min(3, len(names))] {
		largest = append(largest, fmt.Sprintf("%s with %d", name, len(state[name])))
	}
	return fmt.Errorf("shared state of %d bytes is over max-state, %d; the largest names are %s",
		size, limit, strings.Join(largest, ", "))
}

func checkText(s string) error {
	switch {
	case strings.ContainsRune(s, 0):
		return errors.New("want a text without U+0000, have one with it")
	case !utf8.ValidString(s):
		return errors.New("want a text in UTF-8, have other bytes")
	}
	return nil
}

// KindOf names the kind of a value for people.
func KindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case int:
		return "an integer"
	case float64:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "a list"
	case map[string]any:
		return "a mapping"
	case datum.Secret:
		return "the secret " + v.Name + ", which is only for calls"
	}
	return fmt.Sprintf("a value of the Go type %T", v)
}

// CopyData copies a value, so that the caller may change the copy.
func CopyData(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = CopyData(item)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, item := range v {
			out[k] = CopyData(item)
		}
		return out
	}
	return v
}

// EncodeJSON encodes values that cannot fail to encode, because times were bounded and raw values
// come from FormatJSON.
func EncodeJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("engine: encode %T: %v", v, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// AppendText appends a text as [EncodeJSON] encodes it. Most texts need no escape.
func AppendText(b []byte, s string) []byte {
	if !datum.IsPlainText(s) {
		return append(b, EncodeJSON(s)...)
	}
	return append(append(append(b, '"'), s...), '"')
}
