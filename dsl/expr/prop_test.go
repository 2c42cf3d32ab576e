package expr

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/syntax"
)

// grammar makes random expressions that mostly have a value: N means a
// number, T for a text, B for true or false, L for a list of numbers, M for a
// mapping, V for any value. The first forms of each are the leaves.
var grammar = map[rune]struct {
	leaves int
	forms  []string
}{
	'N': {12, []string{
		"1", "-2", "2.5", "0", "9223372036854775807", "total", "tip", "driver-id", "item.n", "xs[0]", "order.items[0].price",
		"shared-state.total",
		"N + N", "N - N", "N * N", "N / N", "N % N", "N ** N", "-N", "(N)", "len(L)", "len(T)", "sum(L)", "max(N, N)",
		"count(L, # > N)", "reduce(L, #acc + #, N)", "L[N]", "L?.[N] ?? N", "N if B else N", "let v = N; v + N", "round(N)",
		"sum(order.items, .price + N)", "order.nope ?? N", "findIndex(L, # == N)", "order?.info?.in",
	}},
	'T': {8, []string{
		"'a'", "'Привет'", "``", "text", "order.id", "order?.info.tariff", "event.id", "find-in-db",
		"T + T", "T[N:N]", "upper(T)", "string(V)", "toJSON(V)", "join(map(L, string(#)), T)", "repeat(T, N)", "replace(T, T, T)",
		"T if B else T", "order.id ?? T", "nothing ?? T", "let o = order; o.id + T", "type(V)", "shared-state['te' + 'xt']",
	}},
	'B': {7, []string{
		"true", "False", "flag", "event.payload['is-authorized']", "flow.state == 'created'", "order != null", "nothing is None",
		"N < N", "N >= N", "T == T", "V == V", "V != V", "N in L", "T not in T", "B and B", "B or B", "not B", "!(B)", "B ? B : B",
		"all(L, # > N)", "any(order.items, .name == T)", "T matches '^a+'", "T startsWith T", "'id' in M", "V is None",
		"order != null and order.id == T", "sources.find-driver.response?.id == T", "T in configs.CITIES.enabled",
	}},
	'L': {4, []string{
		"[]", "[1, 2, 3]", "xs", "[driver-id, tip]",
		"[N, N]", "L + L", "map(L, # + N)", "filter(L, # > N)", "sort(L)", "L[N:]", "N..5", "reverse(L)", "map(order.items, .price)",
		"uniq(L)", "take(L, N)", "L if B else L", "values({a: N, b: N})", "nothing ?? L", "sortBy(L, -#)",
	}},
	'M': {4, []string{
		"{}", "order", "event.payload", "sources.get-order.response.order-document",
		"{a: V, 'b-c': V}", "{(T): V}", "merge(M, M)", "order.items[0]", "groupBy(L, # > N)", "find(order.items, .price > N) ?? M",
	}},
	'V': {4, []string{
		"null", "nothing", "shared-state", "order.items",
		"N", "T", "B", "L", "M", "M[T]", "M.id", "M?.id", "get(M, T, V)", "V ?? V", "[V, V]", "fromJSON(toJSON(V))",
		"let v = V; [v, V]", "V.id", "(V)?.id", "V[N]", "V + V", "V < V", "V and V", "nothing.x", "N =  N", "N // N", "now()",
		"V V", "(V", "\nV # V", "unknown-name.x", "1 < N < 3",
	}},
}

// anExpression draws the text of an expression of a type.
func anExpression(t *rapid.T, of rune, depth int) string {
	g := grammar[of]
	from, forms := 0, g.forms
	if depth == 0 {
		forms = forms[:g.leaves]
	} else if rapid.IntRange(0, 9).Draw(t, "grow") > 0 {
		from = g.leaves
	}
	form := rapid.SampledFrom(forms[min(from, len(forms)-1):]).Draw(t, "form")
	var b strings.Builder
	letters := []rune(form)
	for i, r := range letters {
		word := i > 0 && syntax.InName(letters[i-1]) || i+1 < len(letters) && syntax.InName(letters[i+1])
		if _, ok := grammar[r]; ok && !word {
			b.WriteString("(" + anExpression(t, r, depth-1) + ")")
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// checkExpr compiles and evaluates a text, and checks what holds for any: it
// ends without a panic, all places are inside the text, the same input has
// the same result, and results are data.
func checkExpr(t fataler, source string) *Expr {
	e := newExpr(source)
	var r diag.Reporter
	e.Compile(goldenScope(), datum.AnyKind, &r)
	for _, d := range r.Diagnostics() {
		checkInside(t, e, d.Span)
	}
	if diag.HasErrors(r.Diagnostics()) {
		return nil
	}
	for _, read := range e.Reads() {
		checkInside(t, e, read.Span)
	}
	first, err := e.Eval(goldenEnv())
	env, rooted := goldenEnv(), datum.Env{}
	for name, v := range env {
		rooted[name] = v
		if m, ok := v.(map[string]any); ok {
			rooted[name] = root(m)
		}
	}
	second, again := (&Value{Kind: ValueExpr, Computed: e}).Share(rooted)
	if !reflect.DeepEqual(first, second) || fmt.Sprint(err) != fmt.Sprint(again) {
		t.Fatalf("%s: twice the same gives %v, %v and %v, %v", source, first, err, second, again)
	}
	if !reflect.DeepEqual(env, goldenEnv()) {
		t.Fatalf("%s changes the environment", source)
	}
	if err != nil {
		var failure *EvalError
		if !errors.As(err, &failure) || strings.Contains(failure.Message, "bug in the evaluation") {
			t.Fatalf("%s: want an EvalError, have %v", source, err)
		}
		checkInside(t, e, failure.Span)
		return e
	}
	if _, err := datum.FormatJSON(first); err != nil {
		t.Fatalf("%s: the result is no data: %v", source, err)
	}
	return e
}

// A root is a mapping that makes what is read of it.
type root map[string]any

func (r root) Get(name string) any { return r[name] }

func (r root) Data() map[string]any { return r }

// A fataler is a test of any kind.
type fataler interface {
	Fatalf(format string, args ...any)
}

func checkInside(t fataler, e *Expr, at diag.Span) {
	last := e.At.At(e.At.Len() - 1)
	before := func(a, b diag.Pos) bool { return a.Line < b.Line || a.Line == b.Line && a.Column <= b.Column }
	if !before(at.Start, at.End) || !before(diag.Pos{Line: 1, Column: 1}, at.Start) || at.End.Line > last.Line ||
		at.End.Line == last.Line && at.End.Column > last.Column {
		t.Fatalf("%q: place %v to %v is outside", e.Source, at, at.End)
	}
}

func TestAnyExpressionEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { checkExpr(t, anExpression(t, 'V', 4)) })
}

// What an expression does not read cannot change its result. The engine rests
// on this when it runs handlers in parallel.
func TestReadsAreComplete(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := checkExpr(t, anExpression(t, 'V', 4))
		if e == nil {
			return
		}
		env := goldenEnv()
		for root, names := range env {
			names := names.(map[string]any)
			for name := range maps.Clone(names) {
				if !readsAny(e, datum.Path{root, name}) {
					names[name] = map[string]any{"other": true}
				}
			}
		}
		want, err := e.Eval(goldenEnv())
		have, err2 := e.Eval(env)
		if !reflect.DeepEqual(want, have) || fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("%s reads %v; want %v, %v, have %v, %v", e.Source, e.Reads(), want, err, have, err2)
		}
	})
}

func readsAny(e *Expr, p datum.Path) bool {
	for _, read := range e.Reads() {
		if read.Path.Overlaps(p) {
			return true
		}
	}
	return false
}

// When all reads of a name are guarded, no member is taken of its null.
func TestGuardedReadsAllowForNull(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		source := anExpression(t, 'V', 3)
		if rapid.Bool().Draw(t, "test") {
			source = rapid.SampledFrom([]string{
				"order != null and (%)", "order == null or (%)", "(%) if order else 1", "(%) if order is not None else 1",
				"1 if order is None else (%)", "not (order == null) ? (%) : 2", "let o = order; o != null and (%)", "order.id ?? (%)",
			}).Draw(t, "guard")
			source = strings.ReplaceAll(source, "%", anExpression(t, 'V', 3))
		}
		e := checkExpr(t, source)
		if e == nil {
			return
		}
		env := goldenEnv()
		for name := range goldenScope().State {
			guarded := true
			for _, read := range e.Reads() {
				if read.Path.Overlaps(datum.Path{StateRoot, name}) && (!read.Guarded || len(read.Path) == 1) {
					guarded = false
				}
			}
			if guarded {
				env[StateRoot].(map[string]any)[name] = nil
			}
			_, err := e.Eval(env)
			if guarded && err != nil && (strings.Contains(err.Error(), " "+name+" is null; it has no member") ||
				strings.Contains(err.Error(), " shared-state."+name+" is null; it has no member")) {
				t.Fatalf("%s: %v, although %v", source, err, e.Reads())
			}
			env = goldenEnv()
		}
	})
}

func FuzzExpr(f *testing.F) {
	for _, g := range grammar {
		for _, form := range g.forms {
			f.Add(form)
		}
	}
	for _, rule := range rules.ExprRules() {
		f.Add(rule.Before)
		f.Add(rule.After)
	}
	f.Fuzz(func(t *testing.T, source string) { checkExpr(t, source) })
}
