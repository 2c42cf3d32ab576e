package expr

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/datum"
)

// A Trace is a part of an expression with its values in one evaluation. Its JSON form is part of the API.
type Trace struct {
	Text    string   `json:"text"`    // as written
	From    int      `json:"from"`    // start in the source, in runes
	To      int      `json:"to"`      // end, exclusive
	Outcome string   `json:"outcome"` // value, error, unknown or not_needed
	Values  []any    `json:"values"`  // one per evaluation, as far as there is room: see Cut
	Times   int      `json:"times"`   // number of evaluations; 0 if it was not needed
	Cut     bool     `json:"cut"`     // some values are missing, or contain … for an omission
	Error   string   `json:"error"`   // why the part itself failed; empty if a part of it failed
	Parts   []*Trace `json:"parts"`   // in the order of the text, without literals

	err error
}

// The outcomes of a part. A part that failed has its error, or a part with one.
const (
	TraceValue     = "value"
	TraceError     = "error"
	TraceUnknown   = "unknown" // something that it reads is no longer known
	TraceNotNeeded = "not_needed"
)

// Trace evaluates the expression and records the values of its parts. It is much slower than [Expr.Eval], whose
// result and error are those of the root. Values in env may be [datum.Unknown]. What it keeps is limited. If
// ctx ends, the error is that of ctx.
func (e *Expr) Trace(ctx context.Context, env datum.Env) *Trace {
	w := &tracer{ctx: ctx, left: allowance{nodes: maxTraceNodes, bytes: maxTraceBytes}}
	p := e.watched(w)
	// The result and the limits are those of Eval. The parts are recorded meanwhile.
	result, err := p.run(e, env, new(total))
	root := w.root
	root.Text = strings.TrimRightFunc(e.Source, unicode.IsSpace)
	root.From, root.To = 0, utf8.RuneCountInString(root.Text)
	if err != nil && root.blame() == nil {
		root.fail(err)
	}
	if err == nil {
		root.Values, root.Times, root.Cut = []any{result}, 1, false // run has limited it
	}
	root.conclude()
	return root
}

// Result returns the last value of the part, or the error. If both are nil, the part was not needed.
func (t *Trace) Result() (value any, err error) {
	if failed := t.blame(); failed != nil {
		if failed.err == nil {
			return nil, errors.New(failed.Error) // decoded from JSON
		}
		return nil, failed.err
	}
	if len(t.Values) == 0 {
		return nil, nil
	}
	return t.Values[len(t.Values)-1], nil
}

// fail records why the part itself failed.
func (t *Trace) fail(err error) {
	t.err, t.Error = err, err.Error()
	if e, ok := errors.AsType[*EvalError](err); ok {
		t.Error = e.Message
	}
}

// blame returns the part that failed, or nil.
func (t *Trace) blame() *Trace {
	if t.Error != "" {
		return t
	}
	for _, p := range t.Parts {
		if failed := p.blame(); failed != nil {
			return failed
		}
	}
	return nil
}

// conclude sets the outcomes of the part and its parts.
func (t *Trace) conclude() {
	var unknown datum.Unknown
	switch failed := t.blame(); {
	case failed != nil && errors.As(failed.err, &unknown):
		t.Outcome = TraceUnknown
	case failed != nil:
		t.Outcome = TraceError
	case t.Times == 0:
		t.Outcome = TraceNotNeeded
	default:
		t.Outcome = TraceValue
	}
	for _, p := range t.Parts {
		p.conclude()
	}
}

// UnmarshalJSON implements [json.Unmarshaler]. Values are data of the engine, with exact integers.
func (t *Trace) UnmarshalJSON(data []byte) error {
	type plain Trace
	in := struct {
		*plain
		Values []json.RawMessage `json:"values"`
	}{plain: (*plain)(t)}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	t.Values = nil
	for _, raw := range in.Values {
		v, err := datum.ParseJSON(raw)
		if err != nil {
			return fmt.Errorf("value of %s: %w", t.Text, err)
		}
		t.Values = append(t.Values, v)
	}
	return nil
}

// A tracer records the values of parts during one evaluation.
type tracer struct {
	ctx  context.Context // of the one evaluation
	root *Trace
	open []*Trace  // parts that are being compiled, innermost last
	left allowance // for values
	seen int       // number of values, including dropped ones
}

func (w *tracer) enter(b *builder, n ast.Node) {
	first, last := b.Extent(n)
	from, to := b.Tokens[first].From, b.Tokens[last].To
	w.open = append(w.open, &Trace{
		Text: string([]rune(b.expr.Source)[from:to]), From: from, To: to, Values: []any{}, Parts: []*Trace{},
	})
}

func (w *tracer) leave(_ *builder, _ ast.Node, p part) part {
	t := w.open[len(w.open)-1]
	w.open = w.open[:len(w.open)-1]
	if len(w.open) == 0 {
		w.root = t
	} else if !p.fixed {
		above := w.open[len(w.open)-1]
		above.Parts = append(above.Parts, t)
		slices.SortStableFunc(above.Parts, func(a, b *Trace) int { return a.From - b.From })
	}
	eval := p.eval
	p.eval = func(f *frame) (any, error) {
		v, err := eval(f)
		if unknown, ok := v.(datum.Unknown); ok {
			err = unknown
		}
		if err == nil {
			err = w.alive()
		}
		if err != nil {
			if t.blame() == nil {
				t.fail(err)
			}
			return nil, err
		}
		w.note(t, v)
		return v, nil
	}
	return p
}

// alive checks from time to time whether the context has ended.
func (w *tracer) alive() error {
	w.seen++
	if w.seen%1024 != 1 {
		return nil
	}
	return w.ctx.Err()
}

// note keeps a value if there is room.
func (w *tracer) note(t *Trace, v any) {
	t.Times++
	switch {
	// Half of the room is for first values, so that one loop cannot use all of it.
	case len(t.Values) == maxTraced || len(t.Values) > 0 && (w.left.nodes < maxTraceNodes/2 || w.left.bytes < maxTraceBytes/2):
		t.Cut = true
	default:
		kept, whole := w.left.keep(v)
		t.Values, t.Cut = append(t.Values, kept), t.Cut || !whole
	}
}
