package dsl

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A shape is the set of the types that a value may have.
type shape uint8

const (
	nullShape shape = 1 << iota
	boolShape
	intShape
	floatShape
	stringShape
	listShape
	mapShape
	secretShape

	numberShape = intShape | floatShape
	anyShape    = 1<<8 - 1
)

// String names the shape with its article.
func (s shape) String() string {
	if s == anyShape {
		return "any value"
	}
	var names []string
	add := func(of shape, name string) {
		if s&of == of {
			names = append(names, name)
			s &^= of
		}
	}
	add(boolShape, "true or false")
	add(numberShape, "a number")
	add(intShape, "a whole number")
	add(floatShape, "a number")
	add(stringShape, "a string")
	add(listShape, "a list")
	add(mapShape, "a mapping")
	add(secretShape, "a secret")
	add(nullShape, "null")
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " or " + names[n]
	}
	return names[0]
}

// shapeOfValue gives the type of a value; 0 for a type that no value has.
func shapeOfValue(v any) shape {
	switch v.(type) {
	case nil:
		return nullShape
	case bool:
		return boolShape
	case int:
		return intShape
	case float64:
		return floatShape
	case string:
		return stringShape
	case []any:
		return listShape
	case map[string]any:
		return mapShape
	case Secret:
		return secretShape
	}
	return 0
}

// shapeOf gives the values that a kind accepts. Sizes may be plain numbers;
// durations, times and rates are strings, whose form their decoder checks.
func shapeOf(kind Kind) shape {
	switch kind {
	case BoolKind:
		return boolShape
	case IntKind:
		return numberShape // 6 / 2 is the whole number 3.0
	case FloatKind:
		return numberShape
	case StringKind:
		return stringShape | secretShape
	case DurationKind, TimeKind, RateKind:
		return stringShape
	case BytesKind:
		return stringShape | intShape
	case JitterKind:
		return stringShape | numberShape
	case ListKind:
		return listShape
	case MapKind, ObjectKind:
		return mapShape
	}
	return anyShape
}

// describe says what a value is, for messages. Long strings are cut, lists and mappings are
// not shown at all, and secrets by their names only: messages end up in logs.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case int:
		return "the number " + strconv.Itoa(v)
	case float64:
		return "the number " + formatFloat(v)
	case string:
		const most = 40
		if utf8.RuneCountInString(v) > most {
			v = string([]rune(v[:min(len(v), 4*most)])[:most]) + "…" // a character has at most 4 bytes
		}
		return "the string " + strconv.Quote(v)
	case []any:
		return "a list"
	case map[string]any:
		return "a mapping"
	case Secret:
		return "the secret " + v.Name
	}
	return fmt.Sprintf("a Go %T", v)
}

// formatFloat writes a number as people do, without an exponent where they
// would write none: 12345678, not 1.2345678e+07.
func formatFloat(f float64) string {
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	if f == 0 {
		return "0" // not -0
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}
