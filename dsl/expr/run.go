package expr

import (
	"errors"
	"fmt"
	"sync"

	"procaas/dsl/datum"
	"procaas/dsl/ops"
)

// The limits of all expressions of one value together, such as the body of a request. There may be thousands of
// small ones.
const (
	maxTotalSteps = 10 * ops.MaxSteps
	maxTotalBytes = 8 << 20 // of results
)

var (
	errTotalSteps = errors.New("this expression and those before it in the same value take too many steps together")
	errTotalBytes = errors.New("this expression and those before it in the same value give more than 8 MiB together")
)

// A total is what the expressions of one value have used so far.
type total struct {
	steps, bytes int
	shares       bool // results may share memory with the environment
}

// add counts a finished evaluation.
func (t *total) add(steps, bytes int) error {
	t.steps += steps
	if t.steps > maxTotalSteps {
		return errTotalSteps
	}
	t.bytes += bytes
	if t.bytes > maxTotalBytes {
		return errTotalBytes
	}
	return nil
}

// An evalFunc evaluates a part of an expression.
type evalFunc func(f *frame) (any, error)

// A frame is the memory of one evaluation.
type frame struct {
	ops.Meter
	env   datum.Env // read only
	slots []any     // of let and of loops
}

// program is a compiled expression: a tree of closures. It reuses frames.
type program struct {
	eval   evalFunc     // of the whole
	slots  int          // size of a frame
	reads  []datum.Read // in the order of the text
	frames sync.Pool    // of *frame
}

// run evaluates the program. It turns a panic, which is a bug, into an error of this expression. It adds what
// it uses to t.
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
	p.frames.Put(f) // not after a panic, since it may be inconsistent
	if err != nil {
		return nil, err
	}
	size := 0
	if t.shares {
		err = ops.Weigh(result, &size, 0)
	} else {
		result, err = ops.Fresh(result, &size, 0)
	}
	if err == nil {
		err = t.add(steps, size)
	}
	if err != nil {
		return nil, &EvalError{Span: e.Span, Message: err.Error()}
	}
	return result, nil
}
