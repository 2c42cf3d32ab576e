package ops

import (
	"errors"
	"fmt"
	"math/bits"
	pattern "regexp/syntax"

	"procaas/dsl/datum"
)

// Needs says that an operand is not what it must be.
func Needs(what string, want datum.Shape, have any) error {
	return fmt.Errorf("%s needs %s, have %s", what, want, datum.Describe(have))
}

// MayEqual reports whether values of two shapes can ever be equal.
func MayEqual(l, r datum.Shape) bool {
	return l&r != 0 || l&datum.NumberShape != 0 && r&datum.NumberShape != 0
}

// MaxInstructions is how long a pattern may be once it is compiled.
const MaxInstructions = 1000

// Instructions counts those of a pattern once it is compiled.
func Instructions(text string) (int, error) {
	tree, err := pattern.Parse(text, pattern.Perl)
	if err != nil {
		return 0, err
	}
	prog, err := pattern.Compile(tree.Simplify())
	if err != nil {
		return 0, err
	}
	return len(prog.Inst), nil
}

// The bounds of one evaluation. Together with the bounds on the text they make
// every expression end soon, whatever data it meets.
const (
	MaxSteps  = 500_000   // elements and parts of loop bodies, and lengths of texts
	MaxText   = 64 << 10  // bytes of a string that an expression makes
	MaxList   = 10_000    // elements of a list that an expression makes
	MaxMemory = 8 << 20   // bytes of all that an expression makes
	maxResult = 256 << 10 // bytes of a result
)

// What an evaluation exceeds.
var (
	ErrSteps  = errors.New("the expression takes too many steps")
	ErrText   = errors.New("the string would be longer than 64 KiB")
	ErrList   = errors.New("the list would have more than 10000 elements")
	ErrMemory = errors.New("the expression needs more than 8 MiB of memory")
	ErrResult = errors.New("the result is larger than 256 KiB")
	ErrLevels = errors.New("the value is nested more than 64 levels deep")
)

// A Meter counts what an evaluation uses. Nothing is given back: it bounds what was made in all, not what is held at once.
type Meter struct {
	Steps  int
	Memory int
}

// Step counts n steps of work.
func (m *Meter) Step(n int) error {
	if m.Steps += n; m.Steps > MaxSteps {
		return ErrSteps
	}
	return nil
}

// Read counts the work of looking at n bytes of text.
func (m *Meter) Read(n int) error { return m.Step(1 + n/64) }

// Text counts a string of n bytes before it is made.
func (m *Meter) Text(n int) error {
	if n > MaxText {
		return ErrText
	}
	if m.Memory += n; m.Memory > MaxMemory {
		return ErrMemory
	}
	return m.Read(n)
}

// List counts a list or a mapping of n elements before it is made.
func (m *Meter) List(n int) error {
	if n > MaxList {
		return ErrList
	}
	if m.Memory += 16 * n; m.Memory > MaxMemory {
		return ErrMemory
	}
	return m.Step(n)
}

// Sort counts the comparisons of sorting n elements: n times the logarithm of n.
func (m *Meter) Sort(n int) error { return m.Step(n * bits.Len(uint(n))) }

// Fresh copies data, so that nobody changes what the environment or another
// result shares, and bounds it.
func Fresh(v any, size *int, level int) (any, error) {
	if level > datum.MaxLevels {
		return nil, ErrLevels
	}
	*size += 8
	if s, ok := v.(string); ok {
		*size += len(s)
	}
	if *size > maxResult {
		return nil, ErrResult
	}
	switch v := v.(type) {
	case []any:
		if *size+8*len(v) > maxResult {
			return nil, ErrResult
		}
		out := make([]any, len(v))
		for i, x := range v {
			var err error
			if out[i], err = Fresh(x, size, level+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, min(len(v), MaxList))
		for k, x := range v {
			*size += len(k)
			x, err := Fresh(x, size, level+1)
			if err != nil {
				return nil, err
			}
			out[k] = x
		}
		return out, nil
	}
	return v, nil
}
