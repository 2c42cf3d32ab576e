package dsl

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The functions of the library that work on texts, and those that convert.

// changed makes a function that gives a text in place of another.
func changed(change func(string) string) func(*meter, []any) (any, error) {
	return func(m *meter, a []any) (any, error) {
		s := a[0].(string)
		if err := m.read(len(s)); err != nil {
			return nil, err
		}
		out := change(s) // a few letters change their length
		return out, m.text(len(out))
	}
}

// shortened makes a function that cuts a part from a text.
func shortened(cut func(s, part string) string) func(*meter, []any) (any, error) {
	return func(m *meter, a []any) (any, error) {
		s := a[0].(string)
		return cut(s, a[1].(string)), m.read(len(s))
	}
}

// trim counts more steps for many characters, each of which is looked for in the text.
func trim(m *meter, a []any) (any, error) {
	s := a[0].(string)
	if err := m.read(len(s)); err != nil {
		return nil, err
	}
	if len(a) == 1 {
		return strings.TrimSpace(s), nil
	}
	chars := a[1].(string)
	if err := m.step(len(s) * len(chars) / 64); err != nil {
		return nil, err
	}
	return strings.Trim(s, chars), nil
}

// split counts the parts before it makes them. By an empty separator, each character is one.
func split(m *meter, a []any) (any, error) {
	s, sep := a[0].(string), a[1].(string)
	if err := m.read(len(s)); err != nil {
		return nil, err
	}
	n := strings.Count(s, sep) + 1
	if sep == "" {
		n = utf8.RuneCountInString(s)
	}
	if err := m.list(n); err != nil {
		return nil, err
	}
	return anys(strings.Split(s, sep)), nil
}

// anys makes data of a slice.
func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i, x := range list {
		out[i] = x
	}
	return out
}

// join adds up the size while it looks at the parts: so it stops before the sum overflows.
func join(m *meter, a []any) (any, error) {
	sep, size := "", 0
	if len(a) > 1 {
		sep = a[1].(string)
	}
	list := a[0].([]any)
	if err := m.step(len(list)); err != nil {
		return nil, err
	}
	parts := make([]string, len(list))
	for i, x := range list {
		s, ok := x.(string)
		if !ok {
			return nil, fmt.Errorf("join needs strings, have %s (make strings of them: map(list, string(#)))", describe(x))
		}
		parts[i] = s
		if size += len(s) + len(sep); size > maxText+len(sep) {
			return nil, errText
		}
	}
	return strings.Join(parts, sep), m.text(max(0, size-len(sep)))
}

// replace computes the size of the result before it makes it: each replacement may be longer.
func replace(m *meter, a []any) (any, error) {
	s, old, by := a[0].(string), a[1].(string), a[2].(string)
	if err := m.read(len(s)); err != nil {
		return nil, err
	}
	if err := m.text(len(s) + strings.Count(s, old)*(len(by)-len(old))); err != nil {
		return nil, err
	}
	return strings.ReplaceAll(s, old, by), nil
}

// repeat bounds the number first, so that the product cannot overflow.
func repeat(m *meter, a []any) (any, error) {
	s, n := a[0].(string), a[1].(int)
	if n < 0 {
		return nil, fmt.Errorf("repeat needs a number that is not negative, have %d", n)
	}
	if n > maxText || len(s)*n > maxText {
		return nil, errText
	}
	if err := m.text(len(s) * n); err != nil {
		return nil, err
	}
	return strings.Repeat(s, n), nil
}

// position makes a function that finds a part. It counts characters, as slices of texts do.
func position(find func(s, part string) int) func(*meter, []any) (any, error) {
	return func(m *meter, a []any) (any, error) {
		s := a[0].(string)
		if err := m.read(len(s)); err != nil {
			return nil, err
		}
		i := find(s, a[1].(string))
		if i < 0 {
			return -1, nil
		}
		return utf8.RuneCountInString(s[:i]), nil
	}
}

func toString(m *meter, a []any) (any, error) {
	if s, err := scalarText(a[0]); err == nil {
		return s, nil
	}
	return toJSON(m, a)
}

// scalarText writes a simple value as text.
func scalarText(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "null", nil
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int:
		return strconv.Itoa(v), nil
	case float64:
		return formatFloat(v), nil
	}
	return "", fmt.Errorf("want a simple value, have %s", describe(v))
}

// toInt cuts fractions towards zero, and reads decimal numbers only.
func toInt(_ *meter, a []any) (any, error) {
	switch v := a[0].(type) {
	case float64:
		return whole(math.Trunc(v))
	case string:
		n, err := strconv.Atoi(strings.TrimSpace(v))
		if err != nil {
			return nil, fmt.Errorf("want a whole number of at most 64 bits, have %s", describe(v))
		}
		return n, nil
	}
	return a[0], nil
}

// toFloat refuses NaN and infinities, which strconv reads and JSON does not know.
func toFloat(_ *meter, a []any) (any, error) {
	switch v := a[0].(type) {
	case int:
		return float64(v), nil
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("want a number, have %s", describe(v))
		}
		return f, nil
	}
	return a[0], nil
}

func typeName(_ *meter, a []any) (any, error) {
	names := map[shape]string{
		nullShape: "null", boolShape: "bool", intShape: "int", floatShape: "float",
		stringShape: "string", listShape: "list", mapShape: "map", secretShape: "secret",
	}
	return names[shapeOfValue(a[0])], nil
}

// toJSON bounds the value before it is written.
func toJSON(m *meter, a []any) (any, error) {
	size := 0
	v, err := fresh(a[0], &size, 0) // bounds it
	if err != nil {
		return nil, err
	}
	if err := m.read(size); err != nil {
		return nil, err
	}
	text, err := FormatJSON(v)
	if err != nil {
		return nil, err
	}
	return string(text), m.text(len(text))
}

func fromJSON(m *meter, a []any) (any, error) {
	s := a[0].(string)
	if err := m.step(len(s)); err != nil {
		return nil, err
	}
	// Data takes more memory than its text: a list of zeros has two bytes for each of them.
	if m.memory += 16 * len(s); m.memory > maxMemory {
		return nil, errMemory
	}
	return ParseJSON([]byte(s))
}

func toBase64(m *meter, a []any) (any, error) {
	s := a[0].(string)
	if err := m.text(base64.StdEncoding.EncodedLen(len(s))); err != nil {
		return nil, err
	}
	return base64.StdEncoding.EncodeToString([]byte(s)), nil
}

// fromBase64 gives text: expressions have no values for other bytes.
func fromBase64(m *meter, a []any) (any, error) {
	s := a[0].(string)
	if err := m.text(base64.StdEncoding.DecodedLen(len(s))); err != nil {
		return nil, err
	}
	out, err := base64.StdEncoding.DecodeString(s)
	if err != nil || !utf8.Valid(out) {
		return nil, errors.New("the string is not the base64 of a text")
	}
	return string(out), nil
}
