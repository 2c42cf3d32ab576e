package expr

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
)

// The expression language looks like Python's, and where both know a text they
// mean the same, apart from the differences that docs/authoring/python.md lists. The corpus
// holds what CPython says of thousands of expressions; with -python the same is
// asked of the python3 of this machine, for others each time.
var (
	livePython = flag.Int("python", 0, "compare so many random expressions with the python3 of this machine")
	saveCorpus = flag.Bool("python-corpus", false, "write the corpus of what CPython says anew; needs python3")
)

const (
	pythonScript = "../../testdata/dsl/python/eval.py"
	pythonCorpus = "../../testdata/dsl/python/corpus.txt"
)

// pythonNames are what the expressions may read, in Python's words and ours.
var pythonNames = map[string]any{
	"n": 7, "m": -3, "z": 0, "f": 2.5, "g": -0.5, "s": "hello", "t": "Привет", "e": "", "yes": true, "no": false, "nothing": nil,
	"xs": []any{3, 1, 2}, "ys": []any{1.5, 2}, "ss": []any{"a", "b"}, "empty": []any{}, "mixed": []any{1, "a", nil, true},
	"d": map[string]any{"a": 1, "b": "x", "nil": nil}, "deep": map[string]any{"xs": []any{1, 2}, "d": map[string]any{"k": "v"}},
}

// pythonGrammar makes expressions of the syntax that both have. N means a
// number, T for a text, B for true or false, L for a list, D for a mapping, V for
// any value.
var pythonGrammar = map[byte][]string{
	'N': {
		"0", "1", "2", "-1", "10", "2.5", "0.1", "-0.5", "1e3", "9223372036854775807", "n", "m", "z", "f", "g", "xs[0]", "d['a']",
		"N + N", "N - N", "N * N", "N / N", "N % N", "N ** N", "-N", "+N", "(N)", "len(T)", "len(L)", "len(D)", "abs(N)", "min(N, N)",
		"max(N, N)",
		"min(L)", "max(L)", "sum(L)", "round(N)", "int(N)", "float(N)", "int(T)", "float(T)", "L[N]", "N if B else N", "-N ** N", "N - N - N",
		"N / N / N", "N ** N ** N",
	},
	'T': {
		"''", "'a'", "\"b\"", "'hello'", "'12'", "'1.5'", "'é'", "'a\\nb'", "s", "t", "e", "d['b']", "ss[0]",
		"T + T", "T[N]", "T[N:N]", "T[N:]", "T[:N]", "T[:]", "T if B else T", "(T)", "min(T, T)", "max(T, T)",
	},
	'B': {
		"True", "False", "yes", "no", "N == N", "N != N", "N < N", "N <= N", "N > N", "N >= N", "T == T", "T < T", "T >= T", "V == V", "V != V",
		"N in L", "N not in L", "T in T", "T not in T", "T in D", "V in L", "B and B", "B or B", "not B", "(B)", "B if B else B", "V is None",
		"V is not None",
		"not N == N", "B and B or B", "B or B and B", "not B and B", "N + N < N * N", "L == L", "D == D",
	},
	'L': {
		"[]", "[1, 2]", "[V]", "[N, N]", "xs", "ys", "ss", "empty", "mixed", "deep['xs']", "L + L", "L[N:N]", "L[N:]", "L[:N]", "(L)",
		"L if B else L",
	},
	'D': {"{}", "d", "deep", "deep['d']", "{'a': V}", "{'a': V, 'b': V}", "{T: V}", "(D)", "D if B else D"},
	'V': {
		"None", "nothing", "N", "T", "B", "L", "D", "D[T]", "L[N]", "(V)", "V if B else V", "V if V else V", "V and V", "V or V", "not V",
		"V + V", "V * V", "V < V",
		"V[V]", "len(V)", "-V", "V in V", "V < V < V", "V // N", "V == V == V",
	},
}

// handpicked are expressions about which one wonders.
var handpicked = []string{
	"1 and 2", "0 or 'x'", "'' or 'x'", "not 0", "not ''", "not []", "1 if 'a' else 2", "True + 1", "True == 1", "1 in [True]", "True < 2",
	"sum([True])",
	"1 < 2 < 3", "1 == 1 == True", "7 // 2", "-7 // 2", "-7 % 3", "7 % -3", "-7.5 % 2", "2 ** -1", "-2 ** 2", "2 ** 3 ** 2", "(-8) ** 0.5",
	"0 ** -1",
	"9223372036854775807 + 1", "-9223372036854775808", "2 ** 64", "1e308 * 10", "1 / 0", "1 % 0", "0.1 + 0.2", "1e16 + 1.0", "3.0 == 3",
	"10 / 5", "10 / 4",
	"'ab' * 2", "[1] * 2", "'a' + 1", "[1] + (2)", "'a' 'b'", "'a' < 'B'", "'é' > 'z'", "[1] < [2]", "None < 1", "1 < 'a'", "max(1, 1.0)",
	"max(1.0, 1)", "min([])",
	"max(['b', 'a'])", "max(1, 'a')", "round(2.5)", "round(3.5)", "round(-2.5)", "round(2.675, 2)", "round(7)", "int(2.9)", "int(-2.9)",
	"int('12')", "int(' 12 ')", "int('1_0')",
	"int('0x10')", "int('1.5')", "int(True)", "float('1e3')", "float('inf')", "float(' 1 ')", "abs(-3)", "abs(-2.5)", "abs(True)",
	"len('Привет')", "len(None)", "len(5)",
	"xs[-1]", "xs[3]", "xs[-4]", "xs[1:2]", "xs[2:1]", "xs[-2:]", "xs[::2]", "xs[1.0]", "xs['a']", "s[0]", "s[-1]", "s[1:3]", "s[99]",
	"t[0:3]", "''[0:5]", "d['a']", "d['none']",
	"d['nil']", "d[0]", "d['none'] == None", "'a' in d", "1 in d", "'ell' in s", "1 in 'abc'", "'a' in 5", "None in [None]", "None in []",
	"[1] in [[1]]", "{'a': 1} == {'a': 1.0}",
	"{'a': 1, 'a': 2}", "{1: 2}", "{'a': True} == {'a': 1}", "[] == {}", "None == False", "0 == False", "'1' == 1", "'' == None",
	"nothing['a']", "no and 1 / 0", "yes or 1 / 0",
	"no and 'a' + 1", "1 if yes else 1 / 0", "not yes == no", "1 + 2 * 3", "(1 + 2) * 3", "1 - 2 - 3", "not no and no",
	"1 if no else 2 if no else 3", "0x10", "1_000", "0b11", "0o17", "017", "1.", ".5",
	"n is 7", "n is None", "d is not None", "lambda: 1", "[x for x in xs]", "n == 7 and s == 'hello'", "(1, 2)", "{1, 2}", "f'{n}'",
	"x := 1", "n if yes", "xs[0:2][1]", "deep['d']['k']",
	"str(1)", "sorted(xs)", "all([True])", "any([])", "type(1)", "'a'.upper()", "'%d' % 1", "'a\\u00e9'", "r'a'", "1 <> 2", "n++", "~1",
	"1 & 2", "1 | 2", "1 ^ 2", "1 << 2", "5 @ 2",
	"sum([0.1, 0.2])", "sum([])", "sum(['a'])", "sum(xs)", "1 in xs and 3 in xs", "- 1", "--1", "+'a'", "-None", "True and None",
	"None or True", "not None", "min(3, 1, 2)", "max(xs)", "max([])", "{s: 1}", "xs[:nothing]", "min([None])", "0.1 ** 0.3 ** -0.5",
	"max('ab')", "max(xs, 1)", "max([1], [2])",
	"max('ab')", "max(5)", "yes == not no", "max(xs, 1)", "max([1], [2])", "sum({})", "no < 2", "True <= 0.5",
}

// pythonic draws an expression of a type.
func pythonic(r *rand.Rand, of byte, depth int) string {
	forms := pythonGrammar[of]
	form := forms[r.IntN(len(forms))]
	for depth <= 0 && strings.ContainsAny(form, "NTBLDV") && form != "None" && form != "True" {
		form = forms[r.IntN(len(forms))]
	}
	var b strings.Builder
	for i := 0; i < len(form); i++ {
		word := i+1 < len(form) && 'a' <= form[i+1] && form[i+1] <= 'z'
		if _, ok := pythonGrammar[form[i]]; !ok || word {
			b.WriteByte(form[i])
			continue
		}
		part := pythonic(r, form[i], depth-1)
		if r.IntN(20) == 0 {
			part = pythonic(r, 'V', depth-1)
		}
		if strings.ContainsRune(part, ' ') && r.IntN(4) > 0 {
			part = "(" + part + ")"
		}
		b.WriteString(part)
	}
	return b.String()
}

// somePythonic draws expressions, each once.
func somePythonic(seed uint64, n int) []string {
	r := rand.New(rand.NewPCG(seed, 1))
	seen := map[string]bool{}
	var out []string
	for len(out) < n {
		s := pythonic(r, "NTBLDV"[r.IntN(6)], 1+r.IntN(3))
		if len(s) < 200 && !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// askPython evaluates expressions with the python3 of this machine.
func askPython(t *testing.T, sources []string) []string {
	t.Helper()
	cmd := exec.Command("python3", pythonScript)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("python3 is needed for this: %v", err)
	}
	go func() {
		defer in.Close()
		e := json.NewEncoder(in)
		_ = e.Encode(pythonNames)
		for _, s := range sources {
			_ = e.Encode(s)
		}
	}()
	var out []string
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		out = append(out, lines.Text())
	}
	if err := cmd.Wait(); err != nil || len(out) != len(sources) {
		t.Fatalf("python3 answered %d of %d: %v", len(out), len(sources), err)
	}
	return out
}

// ours returns what the language says of an expression: the value, or why there is
// none.
func ours(source string) (any, error) {
	sc := &Scope{Roots: AllRoots, State: pythonNames}
	var r diag.Reporter
	e := newExpr(source)
	e.Compile(sc, datum.AnyKind, &r)
	for _, d := range r.Diagnostics() {
		if d.Severity == diag.Error {
			return nil, fmt.Errorf("%s: %s", d.Code, d.Message)
		}
	}
	return e.Eval(datum.Env{StateRoot: pythonNames})
}

// A verdict is what both say of one expression.
type verdict struct {
	source string
	python string // JSON, or ! and the name of an exception
	notes  string // of Python, on what has happened on the way: bool, half
	value  any
	err    error
}

func judge(source, answer string) verdict {
	python, notes, _ := strings.Cut(answer, "\t")
	v := verdict{source: source, python: python, notes: notes}
	v.value, v.err = ours(source)
	return v
}

// fails reports whether Python has no value.
func (v verdict) fails() bool { return strings.HasPrefix(v.python, "!") }

// same reports whether both have the same value, or both none.
func (v verdict) same() bool {
	if v.fails() || v.err != nil {
		return v.fails() && v.err != nil
	}
	data, err := datum.ParseJSON([]byte(v.python))
	return err == nil && identical(data, v.value)
}

// identical compares values with their types: 1 is not 1.0.
func identical(a, b any) bool {
	switch x := a.(type) {
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, identical)
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k := range x {
			if other, ok := y[k]; !ok || !identical(x[k], other) {
				return false
			}
		}
		return true
	}
	return a == b
}

func (v verdict) String() string {
	text, err := datum.FormatJSON(v.value)
	if v.err != nil || err != nil {
		text = []byte(fmt.Sprint(errors.Join(v.err, err)))
	}
	return fmt.Sprintf("%s\n  Python: %s\n  here:   %s", v.source, v.python, text)
}

// says reports whether our error has one of the texts.
func (v verdict) says(texts ...string) bool {
	return v.err != nil && slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(v.err.Error(), text) })
}

// A difference is a way in which the language is not Python. Its example stands
// in a row of the table of docs/authoring/python.md.
type difference struct {
	name    string
	example string
	is      func(v verdict) bool
}

// differences are all that there are, the more specific ones first.
var differences = []difference{
	{"chains", "1 < 2 < 3", func(v verdict) bool { return v.says("PC0305") }},
	{"syntax", "7 // 2", func(v verdict) bool { return v.says("PC0302", "PC0303", "PC0304") }},
	{"methods", "'a'.upper()", func(v verdict) bool { return v.says("PC0333") }},
	{"functions", "type(1)", func(v verdict) bool { return v.python == "!NameError" || v.says("PC0330") }},
	{"digits", "round(2.675, 2)", func(v verdict) bool { return v.says("round takes 1 argument") }},
	{"twice", "{'a': 1, 'a': 2}", func(v verdict) bool { return v.says("PC0323") }},
	{"sets", "{1, 2}", func(v verdict) bool { return v.says(`did not expect ","`) }},
	{"neighbours", "'a' 'b'", func(v verdict) bool { return v.says("PC0300: did not expect \"'", `did not expect "\"`) }},
	{"point", "1.", func(v verdict) bool { return v.says(`did not expect "."`) }},
	{"zeros", "017", func(v verdict) bool {
		return v.python == "!SyntaxError" && v.err == nil && strings.Contains(v.source, "0")
	}},
	{"large", "2 ** 64", func(v verdict) bool { return v.says("64 bits") || strings.Contains(v.python, `{"$": "large"}`) }},
	{"finite", "1e308 * 10", func(v verdict) bool { return v.says("not a finite number") }},
	{"keys", "{1: 2}", func(v verdict) bool { return strings.Contains(v.python, `{"$": "keys"}`) }},
	{"missing", "d['none']", func(v verdict) bool { return v.python == "!KeyError" }},
	{"key", "1 in d", func(v verdict) bool { return v.says("the key of a mapping needs", "a key needs") }},
	{"empty", "min([])", func(v verdict) bool { return v.python == "!ValueError" && v.err == nil }},
	{"numerals", "int('1_0')", func(v verdict) bool {
		return v.says("have the string") && v.says("want a whole number", "want a number")
	}},
	{"half", "round(2.5)", func(v verdict) bool { return strings.Contains(v.notes, "half") }},
	{"names", "{s: 1}", func(v verdict) bool {
		return nameKey.MatchString(v.source) || !v.fails() && v.says("PC0300: did not expect", "PC0300: want") && strings.Contains(v.source, "{")
	}},
	{"iterables", "max('ab')", func(v verdict) bool {
		text, isText := v.value.(string)
		return v.says("needs a number, a string or a list, have a mapping", "needs a list, have") || isText && len(text) > 1 &&
			strings.HasPrefix(v.python, `"`) && extremes.MatchString(v.source)
	}},
	{"bounds", "xs[:nothing]", func(v verdict) bool { return v.says("[:] needs a whole number, have null") }},
	{"one", "min([None])", func(v verdict) bool {
		return v.says("cannot compare null with null", "cannot compare a mapping with a mapping", "cannot compare a list with a list") &&
			extremes.MatchString(v.source) && !v.fails()
	}},
	{"rounding", "0.1 ** 0.3 ** -0.5", func(v verdict) bool { return strings.Contains(v.notes, "power") }},
	{"alone", "max(5)", func(v verdict) bool {
		return v.python == "!TypeError" && v.err == nil && extremes.MatchString(v.source)
	}},
	{"not", "yes == not no", func(v verdict) bool { return v.python == "!SyntaxError" && notAfter.MatchString(v.source) }},
	{"times", "'ab' * 2", func(v verdict) bool { return v.says("* needs numbers", "* needs a number") && !v.fails() }},
	{"format", "'%d' % 1", func(v verdict) bool { return v.says("% needs") && !v.fails() }},
	{"bool", "True + 1", func(v verdict) bool {
		return strings.Contains(v.notes, "bool") || v.says("have true", "have false", "true or false and", "and true or false", "with true",
			"with false", "compare true", "compare false")
	}},
	{"truth", "1 and 2", func(v verdict) bool { return v.says("needs true or false") }},
	{"order", "[1] < [2]", func(v verdict) bool {
		return v.says("needs two numbers or two strings", "cannot compare a list with a list") && strings.Contains(v.err.Error(), "a list") &&
			!v.fails()
	}},
	{"lazy", "no and 'a' + 1", func(v verdict) bool {
		return v.says("PC03") && !v.fails() && (strings.Contains(v.source, " if ") || strings.Contains(v.source, " and ") ||
			strings.Contains(v.source, " or "))
	}},
}

// nameKey matches a mapping whose key is a name, extremes a call of min or max, and
// notAfter a not behind an operator.
var (
	notAfter = regexp.MustCompile(`[=<>+*/%-] *\(*not\b`)
	nameKey  = regexp.MustCompile(`[{,] *[a-z]+ *:`)
	extremes = regexp.MustCompile(`\b(min|max)\(`)
)

// difference names the way in which both differ; empty when nobody has foreseen
// it.
func (v verdict) difference() string {
	for _, d := range differences {
		if d.is(v) {
			return d.name
		}
	}
	return ""
}

// TestPythonCorpus compares the language with what CPython has said of the
// expressions of the corpus. Each difference is one of those that are documented,
// and each documented one is seen.
func TestPythonCorpus(t *testing.T) {
	t.Parallel()
	if *saveCorpus {
		saveAnswers(t)
	}
	data, err := os.ReadFile(pythonCorpus)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	n := 0
	for line := range strings.Lines(string(data)) {
		source, answer, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			t.Fatalf("no answer in %q", line)
		}
		n++
		v := judge(source, answer)
		if v.same() {
			continue
		}
		name := v.difference()
		if seen[name]++; name == "" {
			t.Errorf("another difference than those of docs/authoring/python.md:\n%s", v)
		}
	}
	for _, d := range differences {
		if seen[d.name] == 0 {
			t.Errorf("the corpus shows nothing of the difference %s", d.name)
		}
	}
	if n < 3000 {
		t.Errorf("the corpus has %d expressions, want 3000", n)
	}
	t.Logf("%d expressions, differences: %v", n, seen)
}

// saveAnswers asks CPython about the expressions of the corpus.
func saveAnswers(t *testing.T) {
	t.Helper()
	sources := slices.Concat(handpicked, somePythonic(1, 3000))
	answers := askPython(t, sources)
	var b strings.Builder
	for i, source := range sources {
		fmt.Fprintf(&b, "%s\t%s\n", source, answers[i])
	}
	if err := os.WriteFile(pythonCorpus, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPythonLive asks the python3 of this machine about random expressions, when
// -python says how many.
func TestPythonLive(t *testing.T) {
	t.Parallel()
	if *livePython == 0 {
		return // make test-long ONLY=python asks for it
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	seen := map[string]int{}
	for done := 0; done < *livePython; {
		sources := somePythonic(seed+uint64(done), min(5000, *livePython-done))
		done += len(sources)
		for i, answer := range askPython(t, sources) {
			v := judge(sources[i], answer)
			if v.same() {
				seen["none"]++
				continue
			}
			name := v.difference()
			if seen[name]++; name == "" && seen[name] <= 20 {
				t.Errorf("another difference than those of docs/authoring/python.md:\n%s", v)
			}
		}
	}
	t.Logf("%v", seen)
}

// TestPythonDifferencesAreDocumented looks for a row with the example of each
// difference in the language's own page.
func TestPythonDifferencesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/authoring/python.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range differences {
		row := "| `" + strings.ReplaceAll(d.example, "|", "\\|") + "` |"
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/authoring/python.md has no row %s for the difference %s", row, d.name)
		}
	}
}
