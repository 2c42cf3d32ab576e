package expr

import (
	"errors"
	"fmt"
	"sync"

	"procaas/dsl/datum"
	"procaas/dsl/ops"
)

// The bounds of all expressions of one value together, such as the body of a request: each
// of them may be small, and there may be thousands.
const (
	maxTotalSteps = 10 * ops.MaxSteps
	maxTotalBytes = 8 << 20 // of results
)

var (
	errTotalSteps = errors.New("this expression and those before it in the same value take too many steps together")
	errTotalBytes = errors.New("this expression and those before it in the same value give more than 8 MiB together")
)

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

// An evalFunc computes a part of an expression.
type evalFunc func(f *frame) (any, error)

// A frame is the memory of one evaluation.
type frame struct {
	ops.Meter
	env   datum.Env // what it reads; nobody changes it
	slots []any     // of let and of loops
}

// program is an expression made ready: a tree of closures. Frames are reused.
type program struct {
	eval   evalFunc     // of the whole
	slots  int          // how many a frame needs
	reads  []datum.Read // in the order of the text
	frames sync.Pool    // of *frame
}

// run evaluates the program. A panic in it is a bug that must not take the
// process along; it becomes an error of this expression. What it uses counts in t.
func (p *program) run(e *Expr, env datum.Env, t *total) (result any, err error) {
	defer func() {
		if r := recover(); r != nil {
			result, err = nil, &EvalError{Span: e.Span, Message: fmt.Sprintf("bug in the evaluation: %v", r)}
		}
	}()
	f, ok := p.frames.Get().(*frame)
	if !ok {
		f = &frame{slots: make([]any, p.slots)}
	}
	f.env = env
	result, err = p.eval(f)
	steps := f.Steps
	f.env, f.Meter = nil, ops.Meter{}
	clear(f.slots)
	p.frames.Put(f) // not after a panic: it may be half used
	if err != nil {
		return nil, err
	}
	size := 0
	if result, err = ops.Fresh(result, &size, 0); err == nil {
		err = t.add(steps, size)
	}
	if err != nil {
		return nil, &EvalError{Span: e.Span, Message: err.Error()}
	}
	return result, nil
}
