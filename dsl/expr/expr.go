package expr

import (
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/syntax"
	"procaas/dsl/typing"
)

// An Expr is a compiled expression. It is immutable and safe for concurrent use. Size, steps and memory are
// limited, so evaluation always terminates.
type Expr struct {
	// Source is the text after the !$ tag. For an operator of version 1, it is the equivalent text of version
	// 2.
	Source string

	// Span is the position of the expression, without its tag.
	Span diag.Span

	// At has the position of each rune of Source, and of the end.
	At Positions

	// Compile sets the following fields.
	Program *program
	roots   []string        // roots that may be read
	Result  *typing.Outline // type of the value
	want    datum.Kind      // kind that the place requires
	facts   []Fact          // facts that hold if the condition is true
	denied  []Fact          // facts that hold if the condition is false
	Weight  weigher
	all     []string // texts of the condition's conjuncts
}

// An EvalError is the reason why an expression has no value.
type EvalError struct {
	Span    diag.Span // of the part that failed
	Message string
}

// Error implements error: file:line:column: message.
func (e *EvalError) Error() string { return e.Span.String() + ": " + e.Message }

// Compile checks the expression against the names of its scope and the required kind, and prepares Eval and
// Reads. After it has reported an error, the expression must not be evaluated.
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
			e.all = s.Conditions()
		}
		e.facts = lasting(b.factsOf(s.Root, true))
		e.denied = lasting(b.factsOf(s.Root, false))
	}
	if b.failed {
		return
	}
	if fits := datum.ShapeOf(want); root.shape&fits == 0 && !b.doubted {
		b.fail(s.Root, rules.ExprUnfit, "", "want %s here, have %s", fits, root.shape)
		return
	}
	if !b.doubted {
		root = b.placed(root, want)
	}
	e.Program, e.roots = &program{eval: root.eval, slots: b.slots, reads: readsOf(b)}, sc.Roots
	if !b.doubted {
		e.Result = root.known()
	}
}

func (e *Expr) builder(s *syntax.Tree, sc *Scope, r *diag.Reporter) *builder {
	known := names{reports: reports{expr: e, Tree: s, reporter: r}, scope: sc}
	return &builder{checks: checks{names: known}}
}

// watched compiles a valid expression again, observed by w.
func (e *Expr) watched(w watcher) *program {
	s, f := syntax.Parse(e.Source)
	if f != nil {
		return e.Program // unreachable: compile has parsed it
	}
	// Compile has checked the names. Each has the same meaning here.
	b := e.builder(s, &Scope{Roots: e.roots, Lenient: true}, new(diag.Reporter))
	b.watch = w
	root := b.build(s.Root)
	return &program{eval: root.eval, slots: b.slots, reads: e.Reads()}
}

// Eval evaluates the expression. The caller may change the result. The error is an [*EvalError].
func (e *Expr) Eval(env datum.Env) (any, error) { return e.Program.run(e, env, new(total)) }

// Reads lists the paths that the expression may read, in the order of the text. An invalid expression has none.
func (e *Expr) Reads() []datum.Read {
	if e == nil || e.Program == nil {
		return nil
	}
	return e.Program.reads
}

// Stretch returns the position of Source[from:to], counted in runes.
func (e *Expr) Stretch(from, to int) diag.Span {
	if to >= e.At.Len() { // the text has no position
		return e.Span
	}
	start, end := e.At.At(from), e.At.At(to)
	if to > from {
		end = e.At.At(to - 1)
		end.Column++
	}
	return diag.Span{File: e.Span.File, Start: start, End: end, Via: e.Span.Via}
}

// A Scope has the names that an expression may read.
type Scope struct {
	// Roots are the allowed roots: event, shared-state, sources, configs,
	// flow, run, item.
	Roots []string

	// State has the declared names of the shared state with their initial values. They may be read without the
	// prefix unless a root has the same name.
	State map[string]any

	// Sources are the handlers whose outcome may be read.
	Sources []string

	// Late returns handlers that exist, but whose outcome may not be read here. The value is the reason, such as
	// "runs in a later stage". If a handler of the same id is among the sources, the name can be read. Nil is none.
	Late func() map[string]string

	// Hints has what to read instead of some names in Late.
	Hints map[string]string

	// Configs are the declared settings.
	Configs []string

	// Types of event.payload, names of the shared state, responses of handlers, configs, item and inputs.
	// Missing ones may be anything.
	Payload        *typing.Outline
	Known          map[string]*typing.Outline
	Responses      map[string]*typing.Outline
	ConfigOutlines map[string]*typing.Outline
	Item           *typing.Outline
	Inputs         *typing.Outline            // of a called pipeline; otherwise nil
	Outlines       map[string]*typing.Outline // of roots of other files

	// Undescribed are statuses of handlers, such as 404, with which a response has another type than in Responses.
	Undescribed map[string][]string

	// Facts are true wherever the expression is evaluated, because the handler's condition has tested them.
	Facts []Fact

	// Parsed caches trees by text. It may be nil.
	Parsed *syntax.Cache

	// KeyOf is the flow that computes the key from other data than event.key, or "".
	KeyOf string

	// Invites reports whether missing contributions may declare more names of the shared state.
	Invites bool

	// Final reports whether it is a handler of finally, which may read how the run ends.
	Final bool

	// Lenient scopes have no declared state: any other name counts as one.
	Lenient bool

	trial bool // the expression is advice in a message
}
