package dsl

import (
	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// An Env holds the roots that an expression may read: event, shared-state,
// sources, configs, flow, run, and item inside for-each. Values in it are nil,
// bool, int, float64, string, []any, map[string]any and [Secret], nothing else.
type Env map[string]any

// An Unknown stands in an Env for a value that is not known any more. Only
// [Expr.Trace] takes it: what reads it has no value, for this reason.
type Unknown struct{ Why string }

// Error implements error.
func (u Unknown) Error() string { return u.Why }

// A Kind is what a value must be. The zero Kind accepts anything.
type Kind int

// The kinds of values.
const (
	AnyKind Kind = iota
	BoolKind
	IntKind
	FloatKind
	StringKind
	DurationKind // 300ms, 5s, 1h30m, 7d
	TimeKind     // RFC 3339
	BytesKind    // 64KiB, 1MiB
	RateKind     // 100/s, 5/m
	JitterKind   // 0.1, full, decorrelated
	SchemaKind   // a JSON Schema: a mapping, true or false, a name or a file
	ListKind
	MapKind
	ObjectKind // a mapping whose fields a Spec describes
)

// An Expr is a compiled expression. It is immutable and safe for concurrent
// use. Evaluating it always ends: its size, steps and memory are bounded.
type Expr struct {
	// Source is the text after the !$ tag, or the version 2 text that a
	// version 1 form was compiled to.
	Source string

	// Span is where the expression stands, without its tag.
	Span diag.Span

	// at gives the place in the file of each rune of Source, and of the end.
	at []diag.Pos

	// The following are set by compile.
	program *program
	roots   []string // that may be read
	result  *outline // what is known of the value
	facts   []fact   // that hold when it is true; of a condition
	denied  []fact   // that hold when it is false; of a condition
	weight  weigher
	all     []string // the texts of its conjuncts; of a condition
}

// An EvalError says why an expression has no value, and where.
type EvalError struct {
	Span    diag.Span // the part of the expression that failed
	Source  string    // the whole expression
	Message string
}

// Error implements error: file:line:column: message.
func (e *EvalError) Error() string { return e.Span.String() + ": " + e.Message }

// A Secret is what !secret NAME evaluates to: the name, never the value. The
// driver resolves it when the call is made.
type Secret struct {
	Name string

	// To is the id of the declared service, cluster or shard map that is sent the value.
	// Whoever asks for the value sets it; expressions leave it empty.
	To string
}

// compile checks the expression against the names of its scope and the kind of
// value that its place wants, and makes it ready for Eval and Reads. It reports
// what is wrong; then the expression must not be evaluated.
func (e *Expr) compile(sc *scope, want Kind, r *diag.Reporter) {
	s, f := sc.parsed.parse(e.Source)
	if f != nil {
		r.Errorf(e.span(f.from, f.to), f.code, f.hint, "%s", f.message)
		return
	}
	b := e.builder(s, sc, r)
	root := b.build(s.root)
	e.weight.visit(s.root, 0)
	if want == BoolKind {
		if e.all == nil {
			e.all = s.conjuncts(s.root)
		}
		e.facts, e.denied = b.lasting(b.factsOf(s.root, true)), b.lasting(b.factsOf(s.root, false))
	}
	if b.failed {
		return
	}
	if fits := shapeOf(want); root.shape&fits == 0 {
		b.fail(s.root, rules.ExprUnfit, "", "want %s here, have %s", fits, root.shape)
		return
	}
	root = b.placed(root, want)
	e.program, e.roots, e.result = &program{eval: root.eval, slots: b.slots, reads: readsOf(b)}, sc.roots, root.known()
}

func (e *Expr) builder(s *syntax, sc *scope, r *diag.Reporter) *builder {
	return &builder{expr: e, syntax: s, scope: sc, reporter: r, told: map[string]bool{}}
}

// watched makes the expression, which compile has found sound, once more under
// the eyes of w.
func (e *Expr) watched(w watcher) *program {
	s, f := parse(e.Source)
	if f != nil {
		return e.program // unreachable: compile has parsed it
	}
	// Which names there are was checked by compile, and each means the same here.
	b := e.builder(s, &scope{roots: e.roots, lenient: true}, new(diag.Reporter))
	b.watch = w
	root := b.build(s.root)
	return &program{eval: root.eval, slots: b.slots, reads: e.Reads()}
}

// Eval computes the expression. Its result is fresh data that the caller may
// change. The error is an [*EvalError].
func (e *Expr) Eval(env Env) (any, error) { return e.program.run(e, env, new(total)) }

// Reads lists what the expression may read, in the order of the text. What
// compile found wrong reads nothing.
func (e *Expr) Reads() []Read {
	if e.program == nil {
		return nil
	}
	return e.program.reads
}

// span gives the place in the file of the runes from up to to of Source.
func (e *Expr) span(from, to int) diag.Span {
	if to >= len(e.at) { // the text has no known place of its own
		return e.Span
	}
	start, end := e.at[from], e.at[to]
	if to > from {
		end = e.at[to-1]
		end.Column++
	}
	return diag.Span{File: e.Span.File, Start: start, End: end, Via: e.Span.Via}
}
