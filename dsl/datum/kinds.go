package datum

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The units of durations that Go does not have: d is 24 hours, w is 7 days.
var (
	DurationText = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h|d|w))+$`)
	durationPart = regexp.MustCompile(`([0-9.]+)([a-zµ]+)`)
	longUnits    = map[string]int64{"d": int64(24 * time.Hour), "w": int64(7 * 24 * time.Hour)}
)

// ParseDuration parses a duration such as 300ms, 1h30m or 7d. It knows the units of [time.ParseDuration], d for
// 24 hours and w for 7 days. Signs are errors.
func ParseDuration(text string) (time.Duration, error) {
	if len(text) > 64 || !DurationText.MatchString(text) {
		return 0, Unfit(DurationKind, text)
	}
	if !strings.ContainsAny(text, "dw") {
		if d, err := time.ParseDuration(text); err == nil {
			return d, nil
		}
	}
	var total time.Duration
	for _, part := range durationPart.FindAllStringSubmatch(text, -1) {
		d, err := time.ParseDuration(part[0])
		if unit, ok := longUnits[part[2]]; ok {
			d, err = time.ParseDuration(part[1] + "h")
			factor := time.Duration(unit / int64(time.Hour))
			if err == nil && d > math.MaxInt64/factor {
				return 0, fmt.Errorf("%s is longer than a duration can be, 292 years", text)
			}
			d *= factor
		}
		if err != nil || total > math.MaxInt64-d {
			return 0, fmt.Errorf("%s is longer than a duration can be, 292 years", text)
		}
		total += d
	}
	return total, nil
}

// RateText is the syntax of a rate.
var RateText = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)/([a-zµ0-9.]+)$`)

// ParseRate parses a rate such as 100/s, 5/m or 1/10s: a number of calls per unit of time.
func ParseRate(text string) (Rate, error) {
	m := RateText.FindStringSubmatch(text)
	if m == nil || len(text) > 64 {
		return Rate{}, Unfit(RateKind, text)
	}
	count, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return Rate{}, Unfit(RateKind, text)
	}
	unit := m[2]
	if unit[0] < '0' || unit[0] > '9' {
		unit = "1" + unit
	}
	per, err := ParseDuration(unit)
	if err != nil {
		return Rate{}, Unfit(RateKind, text)
	}
	if count == 0 || per == 0 {
		return Rate{}, fmt.Errorf("want a rate above 0, have %q", text)
	}
	return Rate{Count: count, Per: per}, nil
}

// Words for how far a delay may deviate, instead of a number.
const (
	FullJitter         = "full"
	DecorrelatedJitter = "decorrelated"
)

// toJitter converts a share from 0 to 1, or a word.
func toJitter(data any) (Jitter, error) {
	switch x := data.(type) {
	case int:
		return toJitter(float64(x))
	case float64:
		if x < 0 || x > 1 {
			return Jitter{}, fmt.Errorf("want a share from 0 to 1, have %s", DescribeData(x))
		}
		return Jitter{Share: x}, nil
	case string:
		if x == FullJitter || x == DecorrelatedJitter {
			return Jitter{Word: x}, nil
		}
	}
	return Jitter{}, Unfit(JitterKind, data)
}

var (
	// BytesText is the syntax of a size.
	BytesText  = regexp.MustCompile(`^([0-9]+)\s?([A-Za-z]*)$`)
	bytesUnits = map[string]int64{
		"": 1, "B": 1,
		"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
		"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	}
)

// ParseBytes parses a size such as 64KiB, 1MiB or 500. Without a unit, the number is in bytes.
func ParseBytes(text string) (Bytes, error) {
	m := BytesText.FindStringSubmatch(text)
	if m == nil || bytesUnits[m[2]] == 0 {
		return 0, Unfit(BytesKind, text)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || n > math.MaxInt64/bytesUnits[m[2]] {
		return 0, fmt.Errorf("%s is more than a size can be, 8 EiB", text)
	}
	return Bytes(n * bytesUnits[m[2]]), nil
}

// A textForm is a required form of text, with its description.
type textForm struct {
	Expr    *regexp.Regexp
	Want    string
	Numbers bool // accepts whole numbers as text, so a status needs no quotes

	Least, Most int // limits of the numbers; Most is 0 for none
}

// TextForms are the possible values of the tag pattern.
var TextForms = map[string]textForm{
	"id": {
		Expr: regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`),
		Want: "a name of up to 64 letters a-z, digits, - and _, beginning with a letter or digit",
	},
	"class": {
		Expr:    regexp.MustCompile(`^(timeout|deadline|connection|credentials|certificate|schema|[1-5]xx|[1-5][0-9][0-9]|other|any)$`),
		Want:    "timeout, deadline, connection, credentials, certificate, schema, 5xx, 4xx, a status such as 429, other or any",
		Numbers: true, Least: 100, Most: 599,
	},
	"status": {
		Expr:    regexp.MustCompile(`^([1-5]xx|[1-5][0-9][0-9])$`),
		Want:    "a status such as 404, or a class of them such as 2xx",
		Numbers: true, Least: 100, Most: 599,
	},
	"times": {
		Expr:    regexp.MustCompile(`^(any|[1-9][0-9]*)$`),
		Want:    "a number of times from 1, or any",
		Numbers: true, Least: 1,
	},
	"file": {
		Expr: regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`),
		Want: "the name of a file below --secrets-dir, such as tls.crt: letters, digits, _, . and -",
	},
	"secret": {
		Expr: regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]{0,127}$`),
		Want: "letters, digits, _, ., / and -, beginning with a letter",
	},
}

// Wants describes what a kind accepts.
var Wants = map[Kind]string{
	AnyKind:      "a value",
	BoolKind:     "true or false",
	IntKind:      "a whole number",
	FloatKind:    "a number",
	StringKind:   "text",
	DurationKind: "a duration such as 300ms or 5s",
	TimeKind:     "a time such as 2026-01-31T09:30:00Z",
	BytesKind:    "a size such as 64KiB or 1MiB",
	RateKind:     "a rate such as 100/s or 5/m",
	JitterKind:   "a share such as 0.1, full or decorrelated",
	SchemaKind:   "a JSON Schema, the name of one, or a file",
	SecretKind:   "!secret NAME, as the file must not have the value itself",
	ListKind:     "a list",
	MapKind:      "a mapping",
	ObjectKind:   "a mapping",
}

// DescribeData describes data for messages.
func DescribeData(data any) string {
	switch x := data.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(x)
	case int:
		return strconv.Itoa(x)
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64)
	case string:
		if r := []rune(x); len(r) > 40 {
			x = string(r[:40]) + "…"
		}
		return strconv.Quote(x)
	case Secret:
		return "a secret"
	case []any:
		return "a list"
	case map[string]any:
		return "a mapping"
	}
	return fmt.Sprintf("a %T", data)
}

// Convert converts data to a scalar of a kind. It converts numbers if nothing is lost, and never text to a
// number.
func Convert(kind Kind, data any) (any, error) {
	switch kind {
	case BoolKind:
		if b, ok := data.(bool); ok {
			return b, nil
		}
		return nil, Unfit(kind, data)
	case IntKind:
		if i, ok := wholeNumber(data); ok {
			return i, nil
		}
		return nil, Unfit(kind, data)
	case FloatKind:
		switch x := data.(type) {
		case int:
			return float64(x), nil
		case float64:
			return x, nil
		}
		return nil, Unfit(kind, data)
	}
	if i, ok := data.(int); ok && kind == BytesKind && i >= 0 {
		return Bytes(i), nil
	}
	if kind == JitterKind {
		return orError(toJitter(data))
	}
	if kind == SecretKind {
		return nil, fmt.Errorf("want %s", Wants[kind]) // the data may be the secret, which nobody may show
	}
	if _, isBool := data.(bool); isBool && kind == SchemaKind {
		return data, nil
	}
	text, ok := data.(string)
	if !ok {
		return nil, Unfit(kind, data)
	}
	switch kind {
	case StringKind, SchemaKind:
		return text, nil
	case DurationKind:
		return orError(ParseDuration(text))
	case TimeKind:
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, Unfit(kind, data)
		}
		return t, nil
	case BytesKind:
		return orError(ParseBytes(text))
	case RateKind:
		return orError(ParseRate(text))
	}
	panic("dsl: " + Wants[kind] + " is no scalar")
}

// Unfit returns the error for data that a kind does not accept.
func Unfit(kind Kind, data any) error {
	return fmt.Errorf("want %s, have %s", Wants[kind], DescribeData(data))
}

// orError drops the value if there is an error.
func orError[T any](v T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// wholeNumber returns the integer that equals a number exactly.
func wholeNumber(data any) (int64, bool) {
	switch x := data.(type) {
	case int:
		return int64(x), true
	case float64:
		if x == math.Trunc(x) && x >= -(1<<63) && x < 1<<63 {
			return int64(x), true
		}
	}
	return 0, false
}

// CompareScalar orders two scalars of the same kind. Both must have an order.
func CompareScalar(a, b any) int {
	switch a := a.(type) {
	case int64:
		return cmp.Compare(a, b.(int64))
	case float64:
		return cmp.Compare(a, b.(float64))
	case time.Duration:
		return cmp.Compare(a, b.(time.Duration))
	case Bytes:
		return cmp.Compare(a, b.(Bytes))
	case Rate:
		return cmp.Compare(a.PerSecond(), b.(Rate).PerSecond())
	}
	panic(fmt.Sprintf("dsl: a %T has no order", a))
}

// Plainly formats a scalar as authors write it.
func Plainly(data any) string {
	if text, ok := data.(string); ok {
		return text
	}
	return DescribeData(data)
}

// OrList joins words to "a, b or c".
func OrList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
