package dsl

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
)

// maxTraced bounds how many values of one part a [Trace] keeps.
const maxTraced = 100

// A Trace is a part of an expression with what it came to in one evaluation.
type Trace struct {
	Text     string   // as the author wrote it
	From, To int      // where it stands in the source, in runes
	Span     Span     // where it stands in the file
	Values   []any    // one for each time it was computed, up to a hundred
	Times    int      // it was computed; 0 when it was not needed
	Err      error    // why it could not be computed, when no part of it is to blame
	Parts    []*Trace // in the order of the text; literals are left out
}

// Trace evaluates the expression and tells what each part of it came to. It is
// far slower than [Expr.Eval], whose result and error are those of the root.
func (e *Expr) Trace(env Env) *Trace {
	w := &tracer{}
	p := e.watched(w)
	// The result is that of Eval, bounds included; the parts were noted meanwhile.
	result, err := p.run(e, env)
	root := w.root
	root.Text = strings.TrimRightFunc(e.Source, unicode.IsSpace)
	root.From, root.To, root.Span = 0, utf8.RuneCountInString(root.Text), e.Span
	if err != nil && root.blame() == nil {
		root.Err = err
	}
	if err == nil {
		root.Values, root.Times = []any{result}, 1
	}
	return root
}

// Result gives the value that the part came to last. The error says why there is
// none; without a value and an error, the part was not needed.
func (t *Trace) Result() (value any, err error) {
	if failed := t.blame(); failed != nil {
		return nil, failed.Err
	}
	if len(t.Values) == 0 {
		return nil, nil
	}
	return t.Values[len(t.Values)-1], nil
}

// blame finds the part that could not be computed; nil when there is none.
func (t *Trace) blame() *Trace {
	if t.Err != nil {
		return t
	}
	for _, p := range t.Parts {
		if failed := p.blame(); failed != nil {
			return failed
		}
	}
	return nil
}

// A tracer notes the values of parts while an expression is evaluated once.
type tracer struct {
	root *Trace
	open []*Trace // whose parts are being made, innermost last
}

func (w *tracer) enter(b *builder, n ast.Node) {
	first, last := b.extent(n)
	from, to := b.tokens[first].from, b.tokens[last].to
	w.open = append(w.open, &Trace{
		Text: string([]rune(b.expr.Source)[from:to]), From: from, To: to, Span: b.span(n),
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
		if err != nil {
			if t.blame() == nil {
				t.Err = err
			}
			return nil, err
		}
		t.Times++
		if len(t.Values) < maxTraced {
			t.Values = append(t.Values, v)
		}
		return v, nil
	}
	return p
}
