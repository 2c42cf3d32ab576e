package library

import (
	"errors"
	"math"

	"procaas/dsl/ops"
)

// The functions on numbers.

// rounded returns a function that rounds a float to an integer.
func rounded(round func(float64) float64) func(*ops.Meter, []any) (any, error) {
	return func(_ *ops.Meter, a []any) (any, error) {
		if f, ok := a[0].(float64); ok {
			return whole(round(f))
		}
		return a[0], nil
	}
}

// abs uses subtract, which refuses the least integer: its opposite needs 65 bits.
func abs(m *ops.Meter, a []any) (any, error) {
	switch v := a[0].(type) {
	case int:
		if v < 0 {
			return ops.Subtract(m, 0, v)
		}
	case float64:
		return math.Abs(v), nil
	}
	return a[0], nil
}

// extreme returns a function for the least (sign -1) or greatest (sign 1) value.
func extreme(sign int) func(*ops.Meter, []any) (any, error) {
	return func(m *ops.Meter, a []any) (any, error) {
		list, ok := a[0].([]any)
		if !ok || len(a) > 1 { // lists and other values cannot be compared
			list = a
		}
		var best any
		for i, v := range list {
			if i == 0 {
				best = v
			}
			c, err := ops.Compare(m, v, best) // also with itself, since it must be comparable
			if err != nil {
				return nil, err
			}
			if c == sign {
				best = v
			}
		}
		return best, m.Step(len(list))
	}
}

// mean adds floats, since a sum of integers might overflow.
func mean(m *ops.Meter, a []any) (any, error) {
	list := a[0].([]any)
	if len(list) == 0 {
		return nil, errors.New("an empty list has no mean")
	}
	total := any(0.0)
	for _, v := range list {
		var err error
		if total, err = ops.Plus(m, total, v); err != nil {
			return nil, err
		}
	}
	if err := m.Step(len(list)); err != nil {
		return nil, err
	}
	return ops.Divide(m, total, len(list))
}

// median of an even number of elements is the mean of the two in the middle.
func median(m *ops.Meter, a []any) (any, error) {
	sorted, err := sortList(m, a)
	if err != nil {
		return nil, err
	}
	list := sorted.([]any)
	n := len(list)
	switch {
	case n == 0:
		return nil, errors.New("an empty list has no median")
	case n%2 == 1:
		_, err := ops.Number("median", list[n/2])
		return list[n/2], err
	}
	total, err := ops.Plus(m, list[n/2-1], list[n/2])
	if err != nil {
		return nil, err
	}
	return ops.Divide(m, total, 2)
}

// whole converts a float without a fraction. The limits are exact: the result of converting 2^63 in Go depends
// on the processor.
func whole(f float64) (any, error) {
	if f < -1<<63 || f >= 1<<63 {
		return nil, ops.ErrOverflow
	}
	return int(f), nil
}
