package expr

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/library"
	"procaas/dsl/ops"
	"procaas/dsl/rules"
)

// mustExpr compiles an expression in the scope of the goldens.
func mustExpr(t testing.TB, source string) *Expr {
	t.Helper()
	var r diag.Reporter
	e := newExpr(source)
	e.Compile(goldenScope(), datum.AnyKind, &r)
	if ds := r.Diagnostics(); diag.HasErrors(ds) {
		t.Fatalf("%s: %v", source, ds)
	}
	return e
}

// bigEnv adds lists and texts of a size that makes bad expressions slow.
func bigEnv() datum.Env {
	env := goldenEnv()
	items := make([]any, 300)
	for i := range items {
		items[i] = i
	}
	env["item"] = map[string]any{
		"list": items, "text": strings.Repeat("x", 1000), "long": strings.Repeat("a", 1<<20),
		"many": make([]any, 20_000),
	}
	return env
}

// doubling writes n lets, each of twice the size of the one before.
func doubling(n int, first, op, result string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "let v0 = %s; ", first)
	for i := range n {
		fmt.Fprintf(&b, "let v%d = ", i+1)
		fmt.Fprintf(&b, op, i, i)
		b.WriteString("; ")
	}
	return b.String() + fmt.Sprintf(result, n)
}

// Expressions that are made to use much time or memory end at a bound. That
// they end soon follows from the bound; there is no clock in this test.
func TestHostileExpressionsEndAtABound(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, source string
		want         error // nil: it ends well
	}{
		{"nested loops", "all(item.list, all(item.list, all(item.list, all(item.list, # >= 0))))", ops.ErrSteps},
		{"loop in loop over range", "map(1..10000, map(1..10000, #))", ops.ErrSteps},
		{"long range", "len(1..2000000)", ops.ErrList},
		{"whole numbers", "len(-9223372036854775807..9223372036854775807)", ops.ErrList},
		{"doubled text", doubling(40, "item.text", "v%d + v%d", "len(v%d)"), ops.ErrText},
		{"doubled list", doubling(40, "[1]", "v%d + v%d", "len(v%d)"), ops.ErrList},
		{"doubled tree", doubling(40, "[1]", "[v%d, v%d]", "v%d"), ops.ErrResult},
		{"compared trees", doubling(40, "[1]", "[v%d, v%d]", "v%[1]d == [v39, v39]"), ops.ErrSteps},
		{"written tree", doubling(40, "[1]", "[v%d, v%d]", "toJSON(v%d)"), ops.ErrResult},
		{"replaced", "replace(repeat('a', 9000), 'a', repeat('b', 9000))", ops.ErrText},
		{"repeated", "repeat(repeat('ab', 30000), 9223372036854775807)", ops.ErrText},
		{"joined", "join(map(1..10000, item.text), '')", ops.ErrText},
		{"mapped texts", "len(map(1..10000, repeat('x', 60000 + #)))", ops.ErrMemory},
		{"deep list", "reduce(1..10000, [#acc], 0)", ops.ErrLevels},
		{"searched text", "all(1..10000, 'b' in item.long or true)", ops.ErrSteps},
		{"long list", "map(item.many, 1)", ops.ErrList},
		{"large result", "map(1..10000, item.text)", ops.ErrResult},
		{"slow pattern", "all(1..10000, item.text matches '(a+)+(b+)+(a|b){1,20}$' or true)", ops.ErrSteps},
		{"power", "2 ** 9223372036854775807", ops.ErrOverflow},
		{"list that holds another twice", "1 in reduce(1..40, [#acc, #acc], 1)", nil},
		{"regular work", "sum(filter(map(item.list, # * 2), # % 3 == 0))", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := mustExpr(t, test.source).Eval(bigEnv())
			var failure *EvalError
			switch {
			case test.want == nil && err != nil:
				t.Fatalf("want no error, have %v", err)
			case test.want == nil:
			case !errors.As(err, &failure) || failure.Message != test.want.Error():
				t.Fatalf("want %v, have %v", test.want, err)
			}
			wantSmallTrace(t, test.source, err)
		})
	}
}

// wantSmallTrace wants what explains an evaluation to be small however large its values would
// be in print, and to end as the evaluation did.
func wantSmallTrace(t *testing.T, source string, failure error) {
	t.Helper()
	trace := mustExpr(t, source).Trace(t.Context(), bigEnv())
	if _, err := trace.Result(); fmt.Sprint(err) != fmt.Sprint(failure) {
		t.Errorf("want the trace to end as the evaluation: %v, have %v", failure, err)
	}
	text, err := json.Marshal(trace)
	if err != nil {
		t.Fatal(err)
	}
	if most := 3 * maxTraceBytes; len(text) > most { // values, names and texts of parts
		t.Errorf("want a trace of at most %d bytes, have %d", most, len(text))
	}
	if err := WriteTrace(io.Discard, trace, false); err != nil {
		t.Error(err)
	}
}

// What is left out of a trace is said, and the first value of each part is there.
func TestTraceSaysWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	whole := mustExpr(t, "len([1, 'a']) == 2").Trace(t.Context(), bigEnv())
	if whole.Cut {
		t.Errorf("want nothing cut of small values, have %+v", whole)
	}
	cut := mustExpr(t, "len(map(1..2000, [#, [#, #]])) > 5 and 'x' in item.text").Trace(t.Context(), bigEnv())
	var walk func(t *Trace) (cut int)
	walk = func(p *Trace) (cut int) {
		if p.Times > 0 && len(p.Values) == 0 {
			t.Errorf("want the first value of %s, have none", p.Text)
		}
		if p.Cut {
			cut++
		}
		for _, part := range p.Parts {
			cut += walk(part)
		}
		return cut
	}
	if walk(cut) == 0 {
		t.Error("want parts that are cut, have none")
	}
	if v, err := cut.Result(); v != false && v != true || err != nil {
		t.Errorf("want the result as a whole, have %v, %v", v, err)
	}
}

// Whoever asks for a trace may leave while it is made.
func TestTraceEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := mustExpr(t, "sum(map(1..10000, # + 1))").Trace(ctx, bigEnv()).Result(); err == nil ||
		!strings.Contains(err.Error(), "canceled") {
		t.Errorf("want the trace to end with its context, have %v", err)
	}
}

// Each expression of a value is bounded, and so are all of them together.
func TestExpressionsOfOneValueAreBoundedTogether(t *testing.T) {
	t.Parallel()
	value := func(source string, n int) *Value {
		list := &Value{Kind: ValueList}
		for range n {
			list.Elems = append(list.Elems, &Value{Kind: ValueExpr, Computed: mustExpr(t, source)})
		}
		return list
	}
	for name, c := range map[string]struct {
		value *Value
		want  error
	}{
		"bytes": {value("map(1..4, repeat('x', 60000))", 40), errTotalBytes},
		"steps": {value("all(1..99, all(1..1000, # > 0))", 40), errTotalSteps},
		"few":   {value("map(1..4, repeat('x', 60000))", 4), nil},
	} {
		_, err := c.value.Eval(bigEnv())
		if c.want == nil && err != nil || c.want != nil && (err == nil || !strings.Contains(err.Error(), c.want.Error())) {
			t.Errorf("%s: want %v, have %v", name, c.want, err)
		}
	}
}

// What the recursive parser must not see is refused before.
func TestHugeTextsAreRefusedBeforeParsing(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{
		"parentheses": strings.Repeat("(", 2_000_000),
		"lists":       strings.Repeat("[", 33) + strings.Repeat("]", 33),
		"long text":   "'" + strings.Repeat("x", 1<<20) + "'",
		"many parts":  "1" + strings.Repeat(" + 1", 500),
		"members":     "order" + strings.Repeat(".a", 1500),
		"nots":        strings.Repeat("not ", 1000) + "true",
		"signs":       strings.Repeat("-", 1) + strings.Repeat(" -", 1500) + "1",
	} {
		var r diag.Reporter
		newExpr(source).Compile(goldenScope(), datum.AnyKind, &r)
		if ds := r.Diagnostics(); len(ds) != 1 || ds[0].Code != rules.ExprTooLarge {
			t.Errorf("%s: want one %s, have %.300v", name, rules.ExprTooLarge, ds)
		}
	}
}

// The result belongs to the caller, and the environment to the engine.
func TestEvalGivesFreshData(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"order", "{a: [1, 2]}", "[[1]]", "sort(xs)", "merge(order, {a: 1})", "order ?? 1", "take(xs, 2)"} {
		e, env := mustExpr(t, source), goldenEnv()
		first, err := e.Eval(env)
		if err != nil {
			t.Fatal(err)
		}
		spoil(first)
		if !reflect.DeepEqual(env, goldenEnv()) {
			t.Errorf("%s: a change of the result changes the environment", source)
		}
		second, err := e.Eval(goldenEnv())
		if err != nil || reflect.DeepEqual(first, second) {
			t.Errorf("%s: a change of the result changes the next one: %v, %v", source, second, err)
		}
	}
}

// spoil changes data everywhere.
func spoil(v any) {
	switch v := v.(type) {
	case []any:
		for i, x := range v {
			spoil(x)
			v[i] = "spoilt"
		}
	case map[string]any:
		for k, x := range v {
			spoil(x)
			v[k] = "spoilt"
		}
	}
}

func TestEvalMayRunAtTheSameTime(t *testing.T) {
	t.Parallel()
	e, env := mustExpr(t, "let a = total + tip; sum(map(xs, # * a)) + len(order.items)"), goldenEnv()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if v, err := e.Eval(env); err != nil || v != 6*15+2 {
					t.Errorf("want 92, have %v, %v", v, err)
				}
			}
		})
	}
	wg.Wait()
}

// A use of the meter in one evaluation must not be charged to the next.
func TestEachEvaluationHasItsOwnBounds(t *testing.T) {
	t.Parallel()
	e, env := mustExpr(t, "len(map(1..9000, #))"), goldenEnv()
	for range 200 {
		if _, err := e.Eval(env); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSecretsStayOpaque(t *testing.T) {
	t.Parallel()
	env := goldenEnv()
	env["item"] = datum.Secret{Name: "TOKEN"}
	if v, err := mustExpr(t, "item").Eval(env); err != nil || v != (datum.Secret{Name: "TOKEN"}) {
		t.Errorf("want the secret itself, have %v, %v", v, err)
	}
	for _, source := range []string{
		"item == 'x'", "'a' + item", "string(item)", "toJSON([item])", "item.x", "item in ['x']", "upper(item)", "item < 'x'",
	} {
		if v, err := mustExpr(t, source).Eval(env); err == nil {
			t.Errorf("%s: want an error, have %v", source, v)
		}
	}
}

// A value that nothing may put into the environment is an error, not a panic.
func TestEvalSurvivesForeignValues(t *testing.T) {
	t.Parallel()
	env := goldenEnv()
	env["item"] = map[string]any{"n": int64(1), "f": func() {}}
	for _, source := range []string{"item.n + 1", "item.n.x", "item.f == item.f", "item.n < 1", "len(item.n)"} {
		_, err := mustExpr(t, source).Eval(env)
		if _, ok := errors.AsType[*EvalError](err); !ok {
			t.Errorf("%s: want an EvalError, have %v", source, err)
		}
	}
}

func TestEvalErrorNamesFileLineAndColumn(t *testing.T) {
	t.Parallel()
	_, err := mustExpr(t, "total > 0 and\n  nothing.x == 1").Eval(goldenEnv())
	want := "expr:2:3: nothing is null; it has no member x (allow it with ?. or give a default with ??)"
	if err == nil || err.Error() != want {
		t.Errorf("want %s\nhave %v", want, err)
	}
}

func TestFunctionsAreDocumented(t *testing.T) {
	t.Parallel()
	list := library.Functions()
	if !slices.IsSortedFunc(list, func(a, b library.Function) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("functions are not in the order of their names")
	}
	for i, f := range list {
		if i > 0 && f.Name == list[i-1].Name {
			t.Errorf("%s is there twice", f.Name)
		}
		if !strings.HasPrefix(f.Signature, f.Name+"(") || !strings.HasSuffix(f.Doc, ".") {
			t.Errorf("%s: signature %q or sentence %q is not complete", f.Name, f.Signature, f.Doc)
		}
		fn := library.Named(f.Name)
		if _, loop := looping[f.Name]; loop != (fn.Call == nil) {
			t.Errorf("%s is both or neither of a loop and a plain function", f.Name)
		}
	}
	examples, err := os.ReadFile("../../testdata/dsl/expr_functions.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if !strings.Contains(string(examples), f.Name+"(") {
			t.Errorf("expr_functions.txt has no example of %s", f.Name)
		}
	}
	for name, other := range synonyms {
		if library.Named(name) != nil {
			t.Errorf("%s is a function, and %s is said to be meant", name, other)
		}
	}
}

func TestSuggest(t *testing.T) {
	t.Parallel()
	known := []string{"shared-state", "sources", "order", "driver-id", "NOTIFY_SWITCH"}
	for word, want := range map[string]string{
		"shared_state": "shared-state", "sharedState": "shared-state", "ordr": "order", "oredr": "order", "odrer": "order",
		"source": "sources", "driverid": "driver-id", "notify-switch": "NOTIFY_SWITCH", "x": "", "": "", "bananas": "",
	} {
		if have := diag.Suggest(word, known); have != want {
			t.Errorf("%q: want %q, have %q", word, want, have)
		}
	}
}

func TestWholeNumbersAreExact(t *testing.T) {
	t.Parallel()
	numbers := []int{0, 1, -1, 2, 3, -7, 1 << 31, 1<<53 + 1, math.MaxInt, math.MinInt, math.MaxInt - 1, math.MinInt + 1}
	for _, a := range numbers {
		for _, b := range numbers {
			checkWhole(t, "+", a, b, ops.Add)
			checkWhole(t, "-", a, b, ops.Subtract)
			checkWhole(t, "*", a, b, ops.Multiply)
		}
	}
}

// checkWhole compares an operation with that of unbounded numbers.
func checkWhole(t *testing.T, op string, a, b int, apply func(*ops.Meter, any, any) (any, error)) {
	t.Helper()
	x, y := big.NewInt(int64(a)), big.NewInt(int64(b))
	want := map[string]func(x, y *big.Int) *big.Int{
		"+": new(big.Int).Add, "-": new(big.Int).Sub, "*": new(big.Int).Mul,
	}[op](x, y)
	have, err := apply(&ops.Meter{}, a, b)
	switch {
	case !want.IsInt64():
		if !errors.Is(err, ops.ErrOverflow) {
			t.Errorf("%d %s %d: want an overflow, have %v, %v", a, op, b, have, err)
		}
	case err != nil || have != int(want.Int64()):
		t.Errorf("%d %s %d: want %v, have %v, %v", a, op, b, want, have, err)
	}
}
