package spec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"procaas/dsl/datum"
	"procaas/dsl/source"
)

// Scalar converts data to the Go value of a scalar field: bool, int64, float64, string, [time.Duration],
// [time.Time], [datum.Bytes], [datum.Rate] or [datum.Jitter]. The error says what was expected.
func (f *Field) Scalar(data any) (any, error) {
	if i, ok := data.(int); ok && datum.TextForms[f.Pattern].Numbers {
		data = strconv.Itoa(i) // such as a status in a list of names
	}
	v, err := datum.Convert(f.Kind, data)
	switch {
	case err != nil && len(f.Enum) > 0:
		return nil, f.notInEnum(data)
	case err != nil:
		return nil, err
	}
	return v, f.allowed(v, data)
}

// allowed checks a scalar against enum, pattern and range. data is the value before the conversion.
func (f *Field) allowed(v, data any) error {
	if text, ok := v.(string); ok {
		if err := f.allowedText(text); err != nil {
			return err
		}
	}
	if f.low != nil && datum.CompareScalar(v, f.low) < 0 {
		return fmt.Errorf("want %s or more, have %s", f.Min, datum.Plainly(data))
	}
	if f.high != nil && datum.CompareScalar(v, f.high) > 0 {
		return fmt.Errorf("want %s or less, have %s", f.Max, datum.Plainly(data))
	}
	return nil
}

func (f *Field) allowedText(text string) error {
	if len(f.Enum) > 0 && !slices.Contains(f.Enum, text) {
		return f.notInEnum(text)
	}
	if p := datum.TextForms[f.Pattern]; p.Expr != nil && !p.Expr.MatchString(text) {
		return errors.New("want " + p.Want + ", have " + datum.DescribeData(text))
	}
	return nil
}

func (f *Field) notInEnum(data any) error {
	return errors.New("want " + datum.OrList(f.Enum) + ", have " + datum.DescribeData(data))
}

// parse parses the text of a tag as a scalar of the field's kind.
func (f *Field) parse(text string) (any, error) {
	var data any = text
	switch f.Kind {
	case datum.BoolKind, datum.IntKind, datum.FloatKind:
		data, _ = source.PlainScalar(text)
	}
	return datum.Convert(f.Kind, data)
}

// Holds reports whether a scalar fits the field.
func (f *Field) Holds(data any) bool {
	kind := f.Kind
	if kind == datum.AnyKind {
		kind = f.ExprKind
	}
	if kind == datum.AnyKind || kind >= datum.ListKind || kind == datum.SchemaKind || kind == datum.SecretKind || f.Name == "" && f.IsValue {
		return false
	}
	as := *f
	as.Kind = kind
	_, err := as.Scalar(data)
	return err == nil
}
