package library

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"procaas/dsl/datum"
	"procaas/dsl/ops"
)

// The functions on texts, and conversions.

// changed returns a function that changes a text.
func changed(change func(string) string) func(*ops.Meter, []any) (any, error) {
	return func(m *ops.Meter, a []any) (any, error) {
		s := a[0].(string)
		if err := m.Read(len(s)); err != nil {
			return nil, err
		}
		out := change(s) // some letters change their length
		return out, m.Text(len(out))
	}
}

// shortened returns a function that cuts a part from a text.
func shortened(cut func(s, part string) string) func(*ops.Meter, []any) (any, error) {
	return func(m *ops.Meter, a []any) (any, error) {
		s := a[0].(string)
		return cut(s, a[1].(string)), m.Read(len(s))
	}
}

// trim counts more steps for many characters, since it looks for each of them.
func trim(m *ops.Meter, a []any) (any, error) {
	s := a[0].(string)
	if err := m.Read(len(s)); err != nil {
		return nil, err
	}
	if len(a) == 1 {
		return strings.TrimSpace(s), nil
	}
	chars := a[1].(string)
	if err := m.Step(len(s) * len(chars) / 64); err != nil {
		return nil, err
	}
	return strings.Trim(s, chars), nil
}

// split counts the parts before it creates them. An empty separator splits into characters.
func split(m *ops.Meter, a []any) (any, error) {
	s, sep := a[0].(string), a[1].(string)
	if err := m.Read(len(s)); err != nil {
		return nil, err
	}
	n := strings.Count(s, sep) + 1
	if sep == "" {
		n = utf8.RuneCountInString(s)
	}
	if err := m.List(n); err != nil {
		return nil, err
	}
	return anys(strings.Split(s, sep)), nil
}

// anys converts a slice to data.
func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i, x := range list {
		out[i] = x
	}
	return out
}

// join adds up the size while it reads the parts, so it stops before the sum overflows.
func join(m *ops.Meter, a []any) (any, error) {
	sep, size := "", 0
	if len(a) > 1 {
		sep = a[1].(string)
	}
	list := a[0].([]any)
	if err := m.Step(len(list)); err != nil {
		return nil, err
	}
	parts := make([]string, len(list))
	for i, x := range list {
		s, ok := x.(string)
		if !ok {
			return nil, fmt.Errorf("join needs strings, have %s (make strings of them: map(list, string(#)))", datum.Describe(x))
		}
		parts[i] = s
		size += len(s) + len(sep)
		if size > ops.MaxText+len(sep) {
			return nil, ops.ErrText
		}
	}
	return strings.Join(parts, sep), m.Text(max(0, size-len(sep)))
}

// replace computes the size of the result before it creates it.
func replace(m *ops.Meter, a []any) (any, error) {
	s, old, by := a[0].(string), a[1].(string), a[2].(string)
	if err := m.Read(len(s)); err != nil {
		return nil, err
	}
	if err := m.Text(len(s) + strings.Count(s, old)*(len(by)-len(old))); err != nil {
		return nil, err
	}
	return strings.ReplaceAll(s, old, by), nil
}

// repeat limits the number first, so that the product cannot overflow.
func repeat(m *ops.Meter, a []any) (any, error) {
	s, n := a[0].(string), a[1].(int)
	if n < 0 {
		return nil, fmt.Errorf("repeat needs a number that is not negative, have %d", n)
	}
	if n > ops.MaxText || len(s)*n > ops.MaxText {
		return nil, ops.ErrText
	}
	if err := m.Text(len(s) * n); err != nil {
		return nil, err
	}
	return strings.Repeat(s, n), nil
}

// position returns a function that finds a part. It counts characters, as slices of texts do.
func position(find func(s, part string) int) func(*ops.Meter, []any) (any, error) {
	return func(m *ops.Meter, a []any) (any, error) {
		s := a[0].(string)
		if err := m.Read(len(s)); err != nil {
			return nil, err
		}
		i := find(s, a[1].(string))
		if i < 0 {
			return -1, nil
		}
		return utf8.RuneCountInString(s[:i]), nil
	}
}

func toString(m *ops.Meter, a []any) (any, error) {
	if s, err := ScalarText(a[0]); err == nil {
		return s, nil
	}
	return toJSON(m, a)
}

// ScalarText formats a scalar as text.
func ScalarText(v any) (string, error) {
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
		return datum.FormatFloat(v), nil
	}
	return "", fmt.Errorf("want a simple value, have %s", datum.Describe(v))
}

// toInt truncates fractions, and reads decimal numbers only.
func toInt(_ *ops.Meter, a []any) (any, error) {
	switch v := a[0].(type) {
	case float64:
		return whole(math.Trunc(v))
	case string:
		n, err := strconv.Atoi(strings.TrimSpace(v))
		if err != nil {
			return nil, fmt.Errorf("want a whole number of at most 64 bits, have %s", datum.Describe(v))
		}
		return n, nil
	}
	return a[0], nil
}

// toFloat refuses NaN and infinities, which strconv accepts and JSON does not have.
func toFloat(_ *ops.Meter, a []any) (any, error) {
	switch v := a[0].(type) {
	case int:
		return float64(v), nil
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("want a number, have %s", datum.Describe(v))
		}
		return f, nil
	}
	return a[0], nil
}

func typeName(_ *ops.Meter, a []any) (any, error) {
	names := map[datum.Shape]string{
		datum.NullShape: "null", datum.BoolShape: "bool", datum.IntShape: "int", datum.FloatShape: "float",
		datum.StringShape: "string", datum.ListShape: "list", datum.MapShape: "map", datum.SecretShape: "secret",
	}
	return names[datum.ShapeOfValue(a[0])], nil
}

// toJSON limits the value before it is encoded.
func toJSON(m *ops.Meter, a []any) (any, error) {
	size := 0
	v, err := ops.Fresh(a[0], &size, 0) // also limits it
	if err != nil {
		return nil, err
	}
	if err := m.Read(size); err != nil {
		return nil, err
	}
	text, err := datum.FormatJSON(v)
	if err != nil {
		return nil, err
	}
	return string(text), m.Text(len(text))
}

func fromJSON(m *ops.Meter, a []any) (any, error) {
	s := a[0].(string)
	if err := m.Step(len(s)); err != nil {
		return nil, err
	}
	// Data needs more memory than its text: each element of a list of zeros has two bytes of text.
	m.Memory += 16 * len(s)
	if m.Memory > ops.MaxMemory {
		return nil, ops.ErrMemory
	}
	return datum.ParseJSON([]byte(s))
}

func toBase64(m *ops.Meter, a []any) (any, error) {
	s := a[0].(string)
	if err := m.Text(base64.StdEncoding.EncodedLen(len(s))); err != nil {
		return nil, err
	}
	return base64.StdEncoding.EncodeToString([]byte(s)), nil
}

// fromBase64 returns text, since expressions have no values for other bytes.
func fromBase64(m *ops.Meter, a []any) (any, error) {
	s := a[0].(string)
	if err := m.Text(base64.StdEncoding.DecodedLen(len(s))); err != nil {
		return nil, err
	}
	out, err := base64.StdEncoding.DecodeString(s)
	if err != nil || !utf8.Valid(out) {
		return nil, errors.New("the string is not the base64 of a text")
	}
	return string(out), nil
}
