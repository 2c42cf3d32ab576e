package ops

import (
	"errors"
	"fmt"
	"math/bits"
	pattern "regexp/syntax"

	"procaas/dsl/datum"
)

// Needs returns the error for an operand of the wrong type.
func Needs(what string, want datum.Shape, have any) error {
	return fmt.Errorf("%s needs %s, have %s", what, want, datum.Describe(have))
}

// MayEqual reports whether values of two types can be equal.
func MayEqual(l, r datum.Shape) bool {
	return l&r != 0 || l&datum.NumberShape != 0 && r&datum.NumberShape != 0
}

// MaxInstructions is the maximum size of a compiled pattern.
const MaxInstructions = 1000

// Instructions returns the number of instructions of a pattern.
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

// The limits of one evaluation. Together with the limits on the text, they make every expression terminate
// soon, for any data.
const (
	MaxSteps  = 500_000   // elements, parts of loop bodies, and lengths of texts
	MaxText   = 64 << 10  // bytes of a string created by an expression
	MaxList   = 10_000    // elements of a list created by an expression
	MaxMemory = 8 << 20   // bytes of everything that an expression creates
	maxResult = 256 << 10 // bytes of a result
)

// Errors for exceeded limits.
var (
	ErrSteps  = errors.New("the expression takes too many steps: more than 500000 elements and characters. Do less for each element, or let a service compute it")
	ErrText   = errors.New("the string would be longer than 64 KiB")
	ErrList   = errors.New("the list would have more than 10000 elements")
	ErrMemory = errors.New("the expression needs more than 8 MiB of memory")
	ErrResult = errors.New("the result is larger than 256 KiB. Take only the fields that are needed, or store the data and pass a reference to it")
	ErrLevels = errors.New("the value is nested more than 64 levels deep")
)

// A Meter counts what an evaluation uses. It never decreases, since it limits what was created in total.
type Meter struct {
	Steps  int
	Memory int
}

// Step counts n steps of work.
func (m *Meter) Step(n int) error {
	m.Steps += n
	if m.Steps > MaxSteps {
		return ErrSteps
	}
	return nil
}

// Read counts the work of reading n bytes of text.
func (m *Meter) Read(n int) error { return m.Step(1 + n/64) }

// Text counts a string of n bytes before it is made.
func (m *Meter) Text(n int) error {
	if n > MaxText {
		return ErrText
	}
	m.Memory += n
	if m.Memory > MaxMemory {
		return ErrMemory
	}
	return m.Read(n)
}

// List counts a list or a mapping of n elements before it is made.
func (m *Meter) List(n int) error {
	if n > MaxList {
		return ErrList
	}
	m.Memory += 16 * n
	if m.Memory > MaxMemory {
		return ErrMemory
	}
	return m.Step(n)
}

// Sort counts the comparisons of sorting n elements.
func (m *Meter) Sort(n int) error { return m.Step(n * bits.Len(uint(n))) }

// Weigh limits the size of data as Fresh does, without a copy.
func Weigh(v any, size *int, level int) error {
	if level > datum.MaxLevels {
		return ErrLevels
	}
	*size += 8
	if s, ok := v.(string); ok {
		*size += len(s)
	}
	if *size > maxResult {
		return ErrResult
	}
	switch v := v.(type) {
	case []any:
		if *size+8*len(v) > maxResult {
			return ErrResult
		}
		for _, x := range v {
			if err := Weigh(x, size, level+1); err != nil {
				return err
			}
		}
	case map[string]any:
		for k, x := range v {
			*size += len(k)
			if err := Weigh(x, size, level+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// Fresh copies data and limits its size. So a caller's change never affects the environment or another result.
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
