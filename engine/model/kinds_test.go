package model_test

import (
	"math"
	"reflect"
	"testing"

	"procaas/dsl/datum"
	"procaas/engine/model"
)

// A whole number that was computed as a float stays one after a crash: as an int, 5e8 * 1e13 would overflow.
func TestEncodedDataKeepsKindsOfNumbers(t *testing.T) {
	t.Parallel()
	for _, v := range []any{
		5e8, 500000000, 0.0, 0, -3.0, 0.5, 1e-9, 1e20, 1e300, float64(1<<53 - 1), float64(1 << 53), math.MaxInt, -7,
		[]any{1.0, 1, map[string]any{"a": 2.0, "b": 2}},
	} {
		text, err := model.EncodeData(v)
		if err != nil {
			t.Fatal(err)
		}
		back, err := datum.ParseJSON(text)
		if err != nil || !reflect.DeepEqual(back, v) {
			t.Errorf("%#v: have %#v from %s, %v", v, back, text, err)
		}
		if slow, err := datum.ParseAnyJSON(text); err != nil || !reflect.DeepEqual(slow, v) {
			t.Errorf("%#v: have %#v from %s, %v", v, slow, text, err)
		}
	}
}
