package ops

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	"procaas/dsl/datum"
)

// The functions of this file never change their operands, which may belong to the environment.

// ErrOverflow is the error for results that do not fit into an integer.
var ErrOverflow = errors.New("the result does not fit in 64 bits")

// arithmetic returns an operator that uses whole if both operands are integers, and fraction otherwise.
func arithmetic(op string, whole func(a, b int) (any, error), fraction func(a, b float64) float64) func(*Meter, any, any) (any, error) {
	return func(_ *Meter, l, r any) (any, error) {
		a, whole1 := l.(int)
		b, whole2 := r.(int)
		if whole1 && whole2 {
			return whole(a, b)
		}
		x, err := Number(op, l)
		if err != nil {
			return nil, err
		}
		y, err := Number(op, r)
		if err != nil {
			return nil, err
		}
		return finite(fraction(x, y))
	}
}

// Number converts an operand.
func Number(op string, v any) (float64, error) {
	switch v := v.(type) {
	case int:
		return float64(v), nil
	case float64:
		return v, nil
	}
	return 0, Needs(op, datum.NumberShape, v)
}

// finite refuses infinities and NaN, which JSON does not have.
func finite(f float64) (any, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, errors.New("the result is not a finite number")
	}
	return f, nil
}

// addWhole refuses an overflow, after which c would be on the wrong side of a.
func addWhole(a, b int) (any, error) {
	if c := a + b; (c > a) == (b > 0) {
		return c, nil
	}
	return nil, ErrOverflow
}

// Plus adds numbers.
var Plus = arithmetic("+", addWhole, func(a, b float64) float64 { return a + b })

// Add joins strings and lists and adds numbers.
func Add(m *Meter, l, r any) (any, error) {
	switch a := l.(type) {
	case string:
		b, ok := r.(string)
		if !ok {
			return nil, mixed(l, r)
		}
		if err := m.Text(len(a) + len(b)); err != nil {
			return nil, err
		}
		return a + b, nil
	case []any:
		b, ok := r.([]any)
		if !ok {
			return nil, mixed(l, r)
		}
		if err := m.List(len(a) + len(b)); err != nil {
			return nil, err
		}
		return append(append(make([]any, 0, len(a)+len(b)), a...), b...), nil
	}
	switch r.(type) {
	case string, []any:
		return nil, mixed(l, r)
	}
	return Plus(m, l, r)
}

// mixed returns why two values cannot be added.
func mixed(l, r any) error {
	hint := ""
	switch shapes := datum.ShapeOfValue(l) | datum.ShapeOfValue(r); {
	case shapes&datum.StringShape != 0 && shapes&datum.NumberShape != 0:
		hint = " (make a string of the number: string(x))"
	case shapes&datum.MapShape != 0:
		hint = " (write merge(a, b))"
	case shapes&datum.NullShape != 0:
		hint = " (write a default: x ?? 0)"
	}
	return fmt.Errorf("+ cannot join %s and %s%s", datum.Describe(l), datum.Describe(r), hint)
}

// Subtract subtracts numbers.
var Subtract = arithmetic("-", func(a, b int) (any, error) {
	if c := a - b; (c < a) == (b > 0) {
		return c, nil
	}
	return nil, ErrOverflow
}, func(a, b float64) float64 { return a - b })

// multiplyWhole refuses an overflow, after which c / b would not be a. It checks the least integer times -1
// separately, since that quotient overflows in Go too.
func multiplyWhole(a, b int) (any, error) {
	if a == 0 || b == 0 {
		return 0, nil
	}
	if c := a * b; c/b == a && !(a == -1 && b == math.MinInt) && !(b == -1 && a == math.MinInt) {
		return c, nil
	}
	return nil, ErrOverflow
}

// Multiply multiplies numbers.
var Multiply = arithmetic("*", multiplyWhole, func(a, b float64) float64 { return a * b })

// Divide always returns a float, as in Python.
func Divide(_ *Meter, l, r any) (any, error) {
	a, err := Number("/", l)
	if err != nil {
		return nil, err
	}
	b, err := Number("/", r)
	if err != nil {
		return nil, err
	}
	if b == 0 {
		return nil, errors.New("division by zero")
	}
	return finite(a / b)
}

var remainder = arithmetic("%", func(a, b int) (any, error) {
	if b == -1 {
		return 0, nil // the division would overflow
	}
	rest := a % b
	if rest != 0 && (rest < 0) != (b < 0) {
		rest += b
	}
	return rest, nil
}, func(a, b float64) float64 {
	rest := math.Mod(a, b)
	if rest != 0 && (rest < 0) != (b < 0) {
		rest += b
	}
	return rest
})

// Modulo returns the remainder with the sign of the divisor, as in Python.
func Modulo(m *Meter, l, r any) (any, error) {
	if r == 0 || r == 0.0 {
		return nil, errors.New("division by zero")
	}
	return remainder(m, l, r)
}

// Power returns an integer for integers, unless the exponent is negative.
var Power = arithmetic("**", func(a, b int) (any, error) {
	if b < 0 {
		if a == 0 {
			return nil, errors.New("division by zero")
		}
		return finite(math.Pow(float64(a), float64(b)))
	}
	result := any(1)
	// Square and multiply, one round per bit of the exponent: at most 63.
	for base := any(a); ; {
		var err error
		if b&1 == 1 {
			if result, err = multiplyWhole(result.(int), base.(int)); err != nil {
				return nil, err
			}
		}
		b >>= 1
		if b == 0 {
			return result, nil
		}
		if base, err = multiplyWhole(base.(int), base.(int)); err != nil {
			return nil, err
		}
	}
}, math.Pow)

// Sequence returns the integers from l to r, inclusive.
func Sequence(m *Meter, l, r any) (any, error) {
	from, ok := l.(int)
	to, ok2 := r.(int)
	switch {
	case !ok:
		return nil, Needs("..", datum.IntShape, l)
	case !ok2:
		return nil, Needs("..", datum.IntShape, r)
	case to < from:
		return []any{}, nil
	case uint(to)-uint(from) >= MaxList: // the difference of two ints may overflow
		return nil, ErrList
	}
	n := to - from + 1
	if err := m.List(n); err != nil {
		return nil, err
	}
	out := make([]any, n)
	for i := range out {
		out[i] = from + i
	}
	return out, nil
}

// Compare orders two numbers or two strings.
func Compare(m *Meter, l, r any) (int, error) {
	switch a := l.(type) {
	case int:
		switch b := r.(type) {
		case int:
			return cmp.Compare(a, b), nil
		case float64:
			return -compareMixed(b, a), nil
		}
	case float64:
		switch b := r.(type) {
		case int:
			return compareMixed(a, b), nil
		case float64:
			return cmp.Compare(a, b), nil
		}
	case string:
		if b, ok := r.(string); ok {
			return strings.Compare(a, b), m.Read(min(len(a), len(b)))
		}
	}
	return 0, fmt.Errorf("cannot compare %s with %s", datum.Describe(l), datum.Describe(r))
}

// compareMixed compares exactly. Converting b to a float would round it above 2^53.
func compareMixed(a float64, b int) int {
	switch {
	case a >= 1<<63:
		return 1
	case a < -1<<63:
		return -1
	}
	if c := cmp.Compare(int(a), b); c != 0 {
		return c
	}
	return cmp.Compare(a, math.Trunc(a))
}

// Order returns an operator that compares the order of its operands.
func Order(holds func(int) bool) func(*Meter, any, any) (any, error) {
	return func(m *Meter, l, r any) (any, error) {
		c, err := Compare(m, l, r)
		if err != nil {
			return nil, err
		}
		return holds(c), nil
	}
}

// Equals returns == or !=.
func Equals(want bool) func(*Meter, any, any) (any, error) {
	return func(m *Meter, l, r any) (any, error) {
		same, err := Equal(m, l, r)
		if err != nil {
			return nil, err
		}
		return same == want, nil
	}
}

// Equal compares data deeply. It compares numbers by value.
func Equal(m *Meter, l, r any) (bool, error) {
	if err := m.Step(1); err != nil {
		return false, err
	}
	switch a := l.(type) {
	case int, float64:
		switch r.(type) {
		case int, float64:
			c, err := Compare(m, l, r)
			return c == 0, err
		}
		return false, nil
	case string:
		b, ok := r.(string)
		if !ok || len(a) != len(b) {
			return false, nil
		}
		return a == b, m.Read(len(a))
	case []any:
		b, ok := r.([]any)
		if !ok {
			return false, nil
		}
		return equalLists(m, a, b)
	case map[string]any:
		b, ok := r.(map[string]any)
		if !ok {
			return false, nil
		}
		return equalMaps(m, a, b)
	case bool, nil:
		return l == r, nil
	}
	return false, fmt.Errorf("%s cannot be compared", datum.Describe(l))
}

// equalLists stops at the first difference.
func equalLists(m *Meter, a, b []any) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if same, err := Equal(m, a[i], b[i]); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

func equalMaps(m *Meter, a, b map[string]any) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	for k, x := range a {
		y, ok := b[k]
		if !ok {
			return false, nil
		}
		if same, err := Equal(m, x, y); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

// Contains reports whether l is an element of a list, a key of a mapping, or a
// part of a string.
func Contains(m *Meter, l, r any) (any, error) {
	switch in := r.(type) {
	case []any:
		for _, x := range in {
			if same, err := Equal(m, l, x); same || err != nil {
				return same, err
			}
		}
		return false, nil
	case map[string]any:
		key, ok := l.(string)
		if !ok {
			return nil, Needs("the key of a mapping", datum.StringShape, l)
		}
		_, found := in[key]
		return found, nil
	case string:
		part, ok := l.(string)
		if !ok {
			return nil, Needs("a part of a string", datum.StringShape, l)
		}
		return strings.Contains(in, part), m.Read(len(in))
	}
	return nil, fmt.Errorf("in needs a list, a mapping or a string on its right, have %s", datum.Describe(r))
}

// Textual returns an operator on two strings.
func Textual(holds func(s, part string) bool) func(*Meter, any, any) (any, error) {
	return func(m *Meter, l, r any) (any, error) {
		s, ok := l.(string)
		if !ok {
			return nil, fmt.Errorf("want a string on the left, have %s", datum.Describe(l))
		}
		part, ok := r.(string)
		if !ok {
			return nil, fmt.Errorf("want a string on the right, have %s", datum.Describe(r))
		}
		return holds(s, part), m.Read(len(s))
	}
}
