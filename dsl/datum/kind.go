package datum

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Shape is the set of the types that a value may have.
type Shape uint8

// The types, and common sets of them.
const (
	NullShape Shape = 1 << iota
	BoolShape
	IntShape
	FloatShape
	StringShape
	ListShape
	MapShape
	SecretShape

	NumberShape = IntShape | FloatShape
	AnyShape    = 1<<8 - 1
)

// String returns the types with their articles.
func (s Shape) String() string {
	if s == AnyShape {
		return "any value"
	}
	var names []string
	add := func(of Shape, name string) {
		if s&of == of {
			names = append(names, name)
			s &^= of
		}
	}
	add(BoolShape, "true or false")
	add(NumberShape, "a number")
	add(IntShape, "a whole number")
	add(FloatShape, "a number")
	add(StringShape, "a string")
	add(ListShape, "a list")
	add(MapShape, "a mapping")
	add(SecretShape, "a secret")
	add(NullShape, "null")
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " or " + names[n]
	}
	return names[0]
}

// ShapeOfValue returns the type of a value, or 0 if it is not data of the engine.
func ShapeOfValue(v any) Shape {
	switch v.(type) {
	case nil:
		return NullShape
	case bool:
		return BoolShape
	case int:
		return IntShape
	case float64:
		return FloatShape
	case string:
		return StringShape
	case []any:
		return ListShape
	case map[string]any:
		return MapShape
	case Secret:
		return SecretShape
	}
	return 0
}

// ShapeOf returns the types that a kind accepts. Sizes may be plain numbers. Durations, times and rates are
// strings, whose form the decoder checks.
func ShapeOf(kind Kind) Shape {
	switch kind {
	case BoolKind:
		return BoolShape
	case IntKind:
		return NumberShape // because 6 / 2 is 3.0
	case FloatKind:
		return NumberShape
	case StringKind:
		return StringShape | SecretShape
	case DurationKind, TimeKind, RateKind:
		return StringShape
	case BytesKind:
		return StringShape | IntShape
	case JitterKind:
		return StringShape | NumberShape
	case ListKind:
		return ListShape
	case MapKind, ObjectKind:
		return MapShape
	}
	return AnyShape
}

// Describe describes a value for messages, which end up in logs. It cuts long strings, shows only the size of
// lists and mappings, and only the names of secrets.
func Describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case int:
		return "the number " + strconv.Itoa(v)
	case float64:
		return "the number " + FormatFloat(v)
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

// FormatFloat formats a number without an exponent if people would do so: 12345678, not 1.2345678e+07.
func FormatFloat(f float64) string {
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	if f == 0 {
		return "0" // not -0
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}
