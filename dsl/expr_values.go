package dsl

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
)

// The functions of this file compute with values. They never change their
// operands, which may belong to the environment.

var errOverflow = errors.New("the result does not fit in 64 bits")

// arithmetic computes with whole numbers when both operands are whole, and
// with fractions otherwise.
func arithmetic(op string, whole func(a, b int) (any, error), fraction func(a, b float64) float64) func(*meter, any, any) (any, error) {
	return func(_ *meter, l, r any) (any, error) {
		a, whole1 := l.(int)
		b, whole2 := r.(int)
		if whole1 && whole2 {
			return whole(a, b)
		}
		x, err := number(op, l)
		if err != nil {
			return nil, err
		}
		y, err := number(op, r)
		if err != nil {
			return nil, err
		}
		return finite(fraction(x, y))
	}
}

// number converts an operand.
func number(op string, v any) (float64, error) {
	switch v := v.(type) {
	case int:
		return float64(v), nil
	case float64:
		return v, nil
	}
	return 0, needs(op, numberShape, v)
}

// finite refuses what JSON cannot hold.
func finite(f float64) (any, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, errors.New("the result is not a finite number")
	}
	return f, nil
}

// addWhole refuses a sum that does not fit: an overflow turns the order of c and a around.
func addWhole(a, b int) (any, error) {
	if c := a + b; (c > a) == (b > 0) {
		return c, nil
	}
	return nil, errOverflow
}

var plus = arithmetic("+", addWhole, func(a, b float64) float64 { return a + b })

// add joins strings and lists and adds numbers.
func add(m *meter, l, r any) (any, error) {
	switch a := l.(type) {
	case string:
		b, ok := r.(string)
		if !ok {
			return nil, mixed(l, r)
		}
		if err := m.text(len(a) + len(b)); err != nil {
			return nil, err
		}
		return a + b, nil
	case []any:
		b, ok := r.([]any)
		if !ok {
			return nil, mixed(l, r)
		}
		if err := m.list(len(a) + len(b)); err != nil {
			return nil, err
		}
		return append(append(make([]any, 0, len(a)+len(b)), a...), b...), nil
	}
	switch r.(type) {
	case string, []any:
		return nil, mixed(l, r)
	}
	return plus(m, l, r)
}

// mixed says why two values cannot be added.
func mixed(l, r any) error {
	hint := mixHint("+", shapeOfValue(l), shapeOfValue(r))
	if hint != "" {
		hint = " (" + hint + ")"
	}
	return fmt.Errorf("+ cannot join %s and %s%s", describe(l), describe(r), hint)
}

var subtract = arithmetic("-", func(a, b int) (any, error) {
	if c := a - b; (c < a) == (b > 0) {
		return c, nil
	}
	return nil, errOverflow
}, func(a, b float64) float64 { return a - b })

// multiplyWhole refuses a product that does not fit: dividing it again would not give a. The
// least number times -1 is told apart, since Go lets that quotient overflow as well.
func multiplyWhole(a, b int) (any, error) {
	if a == 0 || b == 0 {
		return 0, nil
	}
	if c := a * b; c/b == a && !(a == -1 && b == math.MinInt) && !(b == -1 && a == math.MinInt) {
		return c, nil
	}
	return nil, errOverflow
}

var multiply = arithmetic("*", multiplyWhole, func(a, b float64) float64 { return a * b })

// divide gives a fraction always, as in Python.
func divide(_ *meter, l, r any) (any, error) {
	a, err := number("/", l)
	if err != nil {
		return nil, err
	}
	b, err := number("/", r)
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

// modulo gives the remainder with the sign of the divisor, as in Python.
func modulo(m *meter, l, r any) (any, error) {
	if r == 0 || r == 0.0 {
		return nil, errors.New("division by zero")
	}
	return remainder(m, l, r)
}

// power gives a whole number for whole operands, unless the exponent is
// negative.
var power = arithmetic("**", func(a, b int) (any, error) {
	if b < 0 {
		if a == 0 {
			return nil, errors.New("division by zero")
		}
		return finite(math.Pow(float64(a), float64(b)))
	}
	result := any(1)
	// By squares of the base, one for each bit of the exponent: 63 rounds at most.
	for base := any(a); ; {
		var err error
		if b&1 == 1 {
			if result, err = multiplyWhole(result.(int), base.(int)); err != nil {
				return nil, err
			}
		}
		if b >>= 1; b == 0 {
			return result, nil
		}
		if base, err = multiplyWhole(base.(int), base.(int)); err != nil {
			return nil, err
		}
	}
}, math.Pow)

// sequence gives the whole numbers from l to r, both included.
func sequence(m *meter, l, r any) (any, error) {
	from, ok := l.(int)
	to, ok2 := r.(int)
	switch {
	case !ok:
		return nil, needs("..", intShape, l)
	case !ok2:
		return nil, needs("..", intShape, r)
	case to < from:
		return []any{}, nil
	case uint(to)-uint(from) >= maxList: // the difference of two ints may not fit in one
		return nil, errList
	}
	n := to - from + 1
	if err := m.list(n); err != nil {
		return nil, err
	}
	out := make([]any, n)
	for i := range out {
		out[i] = from + i
	}
	return out, nil
}

// compare orders two numbers or two strings.
func compare(m *meter, l, r any) (int, error) {
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
			return strings.Compare(a, b), m.read(min(len(a), len(b)))
		}
	}
	return 0, fmt.Errorf("cannot compare %s with %s", describe(l), describe(r))
}

// compareMixed compares without loss: a conversion of b to a fraction would
// round it above 2^53.
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

// order makes a comparison of the order of its operands.
func order(holds func(int) bool) func(*meter, any, any) (any, error) {
	return func(m *meter, l, r any) (any, error) {
		c, err := compare(m, l, r)
		if err != nil {
			return nil, err
		}
		return holds(c), nil
	}
}

// equals makes == and !=.
func equals(want bool) func(*meter, any, any) (any, error) {
	return func(m *meter, l, r any) (any, error) {
		same, err := equal(m, l, r)
		if err != nil {
			return nil, err
		}
		return same == want, nil
	}
}

// equal compares data deeply. Numbers are equal when their values are.
func equal(m *meter, l, r any) (bool, error) {
	if err := m.step(1); err != nil {
		return false, err
	}
	switch a := l.(type) {
	case int, float64:
		switch r.(type) {
		case int, float64:
			c, err := compare(m, l, r)
			return c == 0, err
		}
		return false, nil
	case string:
		b, ok := r.(string)
		if !ok || len(a) != len(b) {
			return false, nil
		}
		return a == b, m.read(len(a))
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
	return false, fmt.Errorf("%s cannot be compared", describe(l))
}

// equalLists stops at the first difference.
func equalLists(m *meter, a, b []any) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if same, err := equal(m, a[i], b[i]); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

func equalMaps(m *meter, a, b map[string]any) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	for k, x := range a {
		y, ok := b[k]
		if !ok {
			return false, nil
		}
		if same, err := equal(m, x, y); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

// contains tells whether l is an element of a list, a key of a mapping, or a
// part of a string.
func contains(m *meter, l, r any) (any, error) {
	switch in := r.(type) {
	case []any:
		for _, x := range in {
			if same, err := equal(m, l, x); same || err != nil {
				return same, err
			}
		}
		return false, nil
	case map[string]any:
		key, ok := l.(string)
		if !ok {
			return nil, needs("the key of a mapping", stringShape, l)
		}
		_, found := in[key]
		return found, nil
	case string:
		part, ok := l.(string)
		if !ok {
			return nil, needs("a part of a string", stringShape, l)
		}
		return strings.Contains(in, part), m.read(len(in))
	}
	return nil, fmt.Errorf("in needs a list, a mapping or a string on its right, have %s", describe(r))
}

// textual makes an operator on two strings.
func textual(holds func(s, part string) bool) func(*meter, any, any) (any, error) {
	return func(m *meter, l, r any) (any, error) {
		s, ok := l.(string)
		if !ok {
			return nil, fmt.Errorf("want a string on the left, have %s", describe(l))
		}
		part, ok := r.(string)
		if !ok {
			return nil, fmt.Errorf("want a string on the right, have %s", describe(r))
		}
		return holds(s, part), m.read(len(s))
	}
}
