package dsl

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
)

// The bounds of one evaluation. Together with the bounds on the text they make
// every expression end soon, whatever data it meets.
const (
	maxSteps  = 500_000   // elements and parts of loop bodies, and lengths of texts
	maxText   = 64 << 10  // bytes of a string that an expression makes
	maxList   = 10_000    // elements of a list that an expression makes
	maxMemory = 8 << 20   // bytes of all that an expression makes
	maxResult = 256 << 10 // bytes of a result
	maxLevels = 64        // lists and mappings inside one another
)

// The bounds of all expressions of one value together, such as the body of a request: each
// of them may be small, and there may be thousands.
const (
	maxTotalSteps = 10 * maxSteps
	maxTotalBytes = 8 << 20 // of results
)

var (
	errSteps  = errors.New("the expression takes too many steps")
	errText   = errors.New("the string would be longer than 64 KiB")
	errList   = errors.New("the list would have more than 10000 elements")
	errMemory = errors.New("the expression needs more than 8 MiB of memory")
	errResult = errors.New("the result is larger than 256 KiB")
	errLevels = errors.New("the value is nested more than 64 levels deep")

	errTotalSteps = errors.New("this expression and those before it in the same value take too many steps together")
	errTotalBytes = errors.New("this expression and those before it in the same value give more than 8 MiB together")
)

// A meter counts what an evaluation uses. Nothing is given back: it bounds what was made in all, not what is held at once.
type meter struct {
	steps  int
	memory int
}

// A total is what the expressions of one value have used so far.
type total struct{ steps, bytes int }

// add counts an evaluation that has ended.
func (t *total) add(steps, bytes int) error {
	if t.steps += steps; t.steps > maxTotalSteps {
		return errTotalSteps
	}
	if t.bytes += bytes; t.bytes > maxTotalBytes {
		return errTotalBytes
	}
	return nil
}

// step counts n steps of work.
func (m *meter) step(n int) error {
	if m.steps += n; m.steps > maxSteps {
		return errSteps
	}
	return nil
}

// read counts the work of looking at n bytes of text.
func (m *meter) read(n int) error { return m.step(1 + n/64) }

// text counts a string of n bytes before it is made.
func (m *meter) text(n int) error {
	if n > maxText {
		return errText
	}
	if m.memory += n; m.memory > maxMemory {
		return errMemory
	}
	return m.read(n)
}

// list counts a list or a mapping of n elements before it is made.
func (m *meter) list(n int) error {
	if n > maxList {
		return errList
	}
	if m.memory += 16 * n; m.memory > maxMemory {
		return errMemory
	}
	return m.step(n)
}

// sort counts the comparisons of sorting n elements: n times the logarithm of n.
func (m *meter) sort(n int) error { return m.step(n * bits.Len(uint(n))) }

// An evalFunc computes a part of an expression.
type evalFunc func(f *frame) (any, error)

// A frame is the memory of one evaluation.
type frame struct {
	meter
	env   Env   // what it reads; nobody changes it
	slots []any // of let and of loops
}

// program is an expression made ready: a tree of closures. Frames are reused.
type program struct {
	eval   evalFunc  // of the whole
	slots  int       // how many a frame needs
	reads  []Read    // in the order of the text
	frames sync.Pool // of *frame
}

// run evaluates the program. A panic in it is a bug that must not take the
// process along; it becomes an error of this expression. What it uses counts in t.
func (p *program) run(e *Expr, env Env, t *total) (result any, err error) {
	defer func() {
		if r := recover(); r != nil {
			result, err = nil, &EvalError{Span: e.Span, Source: e.Source, Message: fmt.Sprintf("bug in the evaluation: %v", r)}
		}
	}()
	f, ok := p.frames.Get().(*frame)
	if !ok {
		f = &frame{slots: make([]any, p.slots)}
	}
	f.env = env
	result, err = p.eval(f)
	steps := f.steps
	f.env, f.meter = nil, meter{}
	clear(f.slots)
	p.frames.Put(f) // not after a panic: it may be half used
	if err != nil {
		return nil, err
	}
	size := 0
	if result, err = fresh(result, &size, 0); err == nil {
		err = t.add(steps, size)
	}
	if err != nil {
		return nil, &EvalError{Span: e.Span, Source: e.Source, Message: err.Error()}
	}
	return result, nil
}

// fresh copies data, so that nobody changes what the environment or another
// result shares, and bounds it.
func fresh(v any, size *int, level int) (any, error) {
	if level > maxLevels {
		return nil, errLevels
	}
	*size += 8
	if s, ok := v.(string); ok {
		*size += len(s)
	}
	if *size > maxResult {
		return nil, errResult
	}
	switch v := v.(type) {
	case []any:
		if *size+8*len(v) > maxResult {
			return nil, errResult
		}
		out := make([]any, len(v))
		for i, x := range v {
			var err error
			if out[i], err = fresh(x, size, level+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, min(len(v), maxList))
		for k, x := range v {
			*size += len(k)
			x, err := fresh(x, size, level+1)
			if err != nil {
				return nil, err
			}
			out[k] = x
		}
		return out, nil
	}
	return v, nil
}
