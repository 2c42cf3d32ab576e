package expr

import (
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/syntax"
	"procaas/dsl/typing"
)

// An Expr is a compiled expression. It is immutable and safe for concurrent
// use. Evaluating it always ends: its size, steps and memory are bounded.
type Expr struct {
	// Source is the text after the !$ tag, or the version 2 text that a
	// version 1 form was compiled to.
	Source string

	// Span is where the expression stands, without its tag.
	Span diag.Span

	// At gives the place in the file of each rune of Source, and of the end.
	At []diag.Pos

	// The following are set by compile.
	Program *program
	roots   []string        // that may be read
	Result  *typing.Outline // what is known of the value
	want    datum.Kind      // what its place takes
	facts   []Fact          // that hold when it is true; of a condition
	denied  []Fact          // that hold when it is false; of a condition
	Weight  weigher
	all     []string // the texts of its conjuncts; of a condition
}

// An EvalError says why an expression has no value, and where.
type EvalError struct {
	Span    diag.Span // the part of the expression that failed
	Message string
}

// Error implements error: file:line:column: message.
func (e *EvalError) Error() string { return e.Span.String() + ": " + e.Message }

// Compile checks the expression against the names of its scope and the kind of
// value that its place wants, and makes it ready for Eval and Reads. It reports
// what is wrong; then the expression must not be evaluated.
func (e *Expr) Compile(sc *Scope, want datum.Kind, r *diag.Reporter) {
	s, f := sc.Parsed.Parse(e.Source)
	if f != nil {
		r.Errorf(e.Stretch(f.From, f.To), f.Code, f.Hint, "%s", f.Message)
		return
	}
	b := e.builder(s, sc, r)
	e.want = want
	root := b.build(s.Root)
	e.Weight.visit(s.Root, 0)
	if want == datum.BoolKind {
		if e.all == nil {
			e.all = s.Conjuncts(s.Root)
		}
		e.facts, e.denied = lasting(b.factsOf(s.Root, true)), lasting(b.factsOf(s.Root, false))
	}
	if b.failed {
		return
	}
	if fits := datum.ShapeOf(want); root.shape&fits == 0 {
		b.fail(s.Root, rules.ExprUnfit, "", "want %s here, have %s", fits, root.shape)
		return
	}
	root = b.placed(root, want)
	e.Program, e.roots, e.Result = &program{eval: root.eval, slots: b.slots, reads: readsOf(b)}, sc.Roots, root.known()
}

func (e *Expr) builder(s *syntax.Tree, sc *Scope, r *diag.Reporter) *builder {
	known := names{reports: reports{expr: e, Tree: s, reporter: r}, scope: sc}
	return &builder{checks: checks{names: known, told: map[string]bool{}}}
}

// watched makes the expression, which compile has found sound, once more under
// the eyes of w.
func (e *Expr) watched(w watcher) *program {
	s, f := syntax.Parse(e.Source)
	if f != nil {
		return e.Program // unreachable: compile has parsed it
	}
	// Which names there are was checked by compile, and each means the same here.
	b := e.builder(s, &Scope{Roots: e.roots, Lenient: true}, new(diag.Reporter))
	b.watch = w
	root := b.build(s.Root)
	return &program{eval: root.eval, slots: b.slots, reads: e.Reads()}
}

// Eval computes the expression. Its result is fresh data that the caller may
// change. The error is an [*EvalError].
func (e *Expr) Eval(env datum.Env) (any, error) { return e.Program.run(e, env, new(total)) }

// Reads lists what the expression may read, in the order of the text. What
// compile found wrong reads nothing.
func (e *Expr) Reads() []datum.Read {
	if e.Program == nil {
		return nil
	}
	return e.Program.reads
}

// Stretch returns the place in the file of the runes from up to to of Source.
func (e *Expr) Stretch(from, to int) diag.Span {
	if to >= len(e.At) { // the text has no known place of its own
		return e.Span
	}
	start, end := e.At[from], e.At[to]
	if to > from {
		end = e.At[to-1]
		end.Column++
	}
	return diag.Span{File: e.Span.File, Start: start, End: end, Via: e.Span.Via}
}

// A Scope says what names an expression may read at its place.
type Scope struct {
	// Roots are the allowed roots: event, shared-state, sources, configs,
	// flow, run, item.
	Roots []string

	// State holds the declared names of the shared state with their first
	// values. They may be read without the prefix where no root hides them.
	State map[string]any

	// Sources are the handlers whose outcome may be read.
	Sources []string

	// Late holds handlers that exist but whose outcome may not be read here,
	// with the reason for people, such as "runs in a later stage".
	Late map[string]string

	// Hints say what to read in place of some of these.
	Hints map[string]string

	// Configs are the declared settings.
	Configs []string

	// What is known of event.payload, of the names of the shared state, of the
	// responses of handlers, of configs and of item. What is not here may be
	// anything.
	Payload        *typing.Outline
	Known          map[string]*typing.Outline
	Responses      map[string]*typing.Outline
	ConfigOutlines map[string]*typing.Outline
	Item           *typing.Outline
	Inputs         *typing.Outline // of a pipeline that others call; nil elsewhere

	// Facts hold wherever the expression is evaluated: the handler's condition has
	// tested them.
	Facts []Fact

	// Parsed keeps the trees of texts that were parsed; nil keeps none.
	Parsed *syntax.Cache

	// KeyOf names the flow if it computes the key from other things than event.key.
	KeyOf string

	// Invites says that contributions which were not given may declare more names
	// of the shared state.
	Invites bool

	// Lenient scopes know no shared state: any other name counts as one.
	Lenient bool

	trial bool // the expression is one that a message may advise
}
