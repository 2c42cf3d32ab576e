package dsl

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
)

// The first version of the language had no syntax of its own: an operator
// stood behind a # in a key, its arguments below. Here it becomes the text of
// an expression of the second version, each rune placed where it came from.

// v1Operators are the operators of the first version.
var v1Operators = []string{"and", "contains", "not", "or", "xget"}

// A v1Op is an operator of the first version with the place of its name.
type v1Op struct {
	name string
	span diag.Span
}

// v1Name matches keys such as enabled#and and #not.
var v1Name = regexp.MustCompile(`^([^#\s]*)#([a-z][a-z0-9-]*)$`)

// v1Key splits an unquoted key into the name and the operator behind it, which
// is nil when there is none.
func v1Key(s *source, n *yaml.Node) (name string, op *v1Op) {
	m := v1Name.FindStringSubmatch(n.Value)
	if m == nil || isQuoted(n) && (m[1] != "" || !slices.Contains(v1Operators, m[2])) {
		return n.Value, nil
	}
	span := s.nodeSpan(n)
	if isQuoted(n) {
		return m[1], &v1Op{m[2], span} // only #op: without quotes YAML takes it for a comment
	}
	span.Start.Column += utf8.RuneCountInString(m[1])
	return m[1], &v1Op{m[2], span}
}

// v1Whole tells whether a mapping as a whole is one operator with its
// arguments: its only key is value#op or #op.
func (s *source) v1Whole(n *yaml.Node) (op *v1Op, arg *yaml.Node) {
	if len(n.Content) != 2 || n.Content[0].Kind != yaml.ScalarNode {
		return nil, nil
	}
	name, op := v1Key(s, n.Content[0])
	if op == nil || name != "" && name != "value" {
		return nil, nil
	}
	return op, n.Content[1]
}

// v1Bare matches lines that end in an operator whose colon is missing, as it is
// in the oldest listings of the language.
var v1Bare = regexp.MustCompile(`(?m)^([ -]*[\w.-]+#(?:and|contains|not|or))[ \t]*\r?$`)

// addV1Colons adds the colons that are missing behind operators at the end of a
// line, with a warning. It tells whether there were any. No place changes.
func (s *source) addV1Colons() bool {
	mended := v1Bare.ReplaceAll(s.data, []byte("$1:"))
	if len(mended) == len(s.data) && bytes.Equal(mended, s.data) {
		return false
	}
	for i, line := range s.lines {
		if text := strings.TrimRight(string(line), " \t"); v1Bare.MatchString(text) {
			at := diag.Pos{Line: i + 1, Column: utf8.RuneCountInString(text) + 1}
			s.report(diag.Diagnostic{Span: s.at(at, at), Severity: diag.Warning, Code: rules.V1, Hint: "write " + strings.TrimLeft(text, " -") +
				":", Message: "the colon behind the operator is missing"})
		}
	}
	s.data, s.colons = mended, true
	return true
}

// v1Value compiles an operator and its argument to an expression.
func (s *source) v1Value(op *v1Op, arg *yaml.Node) *expr.Value {
	w := &v1Writer{source: s}
	span := s.v1Span(arg)
	w.place = span.Start
	w.operator(op, arg)
	if w.failed {
		return &expr.Value{Span: span}
	}
	w.at = append(w.at, span.End)
	return &expr.Value{Kind: expr.ValueExpr, Span: span, Computed: &expr.Expr{Source: string(w.text), Span: span, At: w.at}}
}

// v1Span tells where an argument stands.
func (s *source) v1Span(n *yaml.Node) diag.Span {
	span := s.nodeSpan(n)
	for n.Kind != yaml.AliasNode && len(n.Content) > 0 {
		n = n.Content[len(n.Content)-1]
		span.End = s.nodeSpan(n).End
	}
	return span
}

// A v1Writer writes the text of an expression.
type v1Writer struct {
	*source
	text   []rune
	at     []diag.Pos
	place  diag.Pos // of the node that is being written
	failed bool
}

func (w *v1Writer) write(text string) {
	for _, r := range text {
		w.text = append(w.text, r)
		w.at = append(w.at, w.place)
	}
}

func (w *v1Writer) fail(at diag.Span, hint, format string, args ...any) {
	w.failed = true
	w.errorf(at, rules.V1, hint, format, args...)
}

func (w *v1Writer) operator(op *v1Op, arg *yaml.Node) {
	if arg.Kind == yaml.AliasNode {
		arg = arg.Alias
	}
	switch op.name {
	case "and", "or":
		w.chain(op, arg)
	case "not":
		w.not(arg)
	case "contains":
		w.contains(op, arg)
	case "xget":
		w.get(op, arg)
	default:
		hint := choice(op.name, v1Operators, "the operators are") + "; put the key in quotes if the # belongs to its name"
		w.fail(op.span, hint, "unknown operator %s", datum.DescribeData("#"+op.name))
	}
}

// chain writes #and and #or: a list of conditions.
func (w *v1Writer) chain(op *v1Op, arg *yaml.Node) {
	if arg.Kind != yaml.SequenceNode || len(arg.Content) == 0 {
		w.fail(op.span, "", "#%s wants a list of conditions", op.name)
		return
	}
	for i, c := range arg.Content {
		if i > 0 {
			w.write(" " + op.name + " ")
		}
		w.parenthesised(c)
	}
}

// not writes #not: one condition, also as a list of one.
func (w *v1Writer) not(arg *yaml.Node) {
	if arg.Kind == yaml.SequenceNode && len(arg.Content) == 1 {
		arg = arg.Content[0]
	}
	w.write("not ")
	w.parenthesised(arg)
}

// contains writes #contains: whether haystack holds needle.
func (w *v1Writer) contains(op *v1Op, arg *yaml.Node) {
	var haystack, needle func()
	if arg.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(arg.Content); i += 2 {
			key, value := arg.Content[i], arg.Content[i+1]
			name, inner := v1Key(w.source, key)
			part := func() { w.argument(inner, value) }
			switch name {
			case "haystack":
				haystack = part
			case "needle":
				needle = part
			default:
				w.fail(w.nodeSpan(key), "", "#contains takes haystack and needle, not %s", name)
			}
		}
	}
	if haystack == nil || needle == nil {
		w.fail(op.span, "", "#contains wants a mapping of haystack and needle")
		return
	}
	needle()
	w.write(" in ")
	haystack()
}

// argument writes a part that may have an operator in its key.
func (w *v1Writer) argument(op *v1Op, value *yaml.Node) {
	if op == nil {
		w.parenthesised(value)
		return
	}
	before := w.place
	w.place = diag.Pos{Line: value.Line, Column: value.Column}
	w.write("(")
	w.operator(op, value)
	w.write(")")
	w.place = before
}

// parenthesised writes a value; parentheses are only left out around what
// needs none.
func (w *v1Writer) parenthesised(n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	before := w.place
	w.place = diag.Pos{Line: n.Line, Column: n.Column}
	defer func() { w.place = before }()
	switch n.Kind {
	case yaml.SequenceNode:
		w.list(n)
	case yaml.MappingNode:
		if op, arg := w.v1Whole(n); op != nil {
			w.argument(op, arg)
			return
		}
		w.object(n)
	default:
		w.scalarText(n)
	}
}

func (w *v1Writer) list(n *yaml.Node) {
	w.write("[")
	for i, c := range n.Content {
		if i > 0 {
			w.write(", ")
		}
		w.parenthesised(c)
	}
	w.write("]")
}

func (w *v1Writer) object(n *yaml.Node) {
	w.write("{")
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, op, ok := w.key(n.Content[i])
		w.failed = w.failed || !ok
		if i > 0 {
			w.write(", ")
		}
		w.write(quoteExpr(key.Name) + ": ")
		w.argument(op, n.Content[i+1])
	}
	w.write("}")
}

// scalarText writes a literal, or an expression of the second version as it
// stands.
func (w *v1Writer) scalarText(n *yaml.Node) {
	v := w.scalar(n)
	if v.Kind == expr.ValueSecret {
		w.fail(v.Span, "", "a secret cannot stand in an expression")
		return
	}
	if v.Kind == expr.ValueExpr {
		w.write("(")
		w.text = append(w.text, []rune(v.Computed.Source)...)
		w.at = append(w.at, v.Computed.At[:len(v.Computed.At)-1]...)
		w.write(")")
		return
	}
	switch x := v.Scalar.(type) {
	case nil:
		w.write("nil")
	case bool:
		w.write(strconv.FormatBool(x))
	case int:
		w.write(strconv.Itoa(x))
	case float64:
		w.write(strconv.FormatFloat(x, 'g', -1, 64))
	case string:
		w.write(quoteExpr(x))
	}
}

// Names that expressions can write without quotes, and words that mean
// something else there.
var (
	exprName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(-[A-Za-z0-9_]+)*$`)
	exprIndex = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})$`)
	exprWords = []string{"and", "or", "not", "in", "if", "else", "let", "nil", "true", "false", "True", "False", "None", "matches",
		"contains", "startsWith", "endsWith"}
)

// get writes #xget: a path such as /order/info/tariff.
func (w *v1Writer) get(op *v1Op, arg *yaml.Node) {
	if arg.Kind != yaml.ScalarNode || !strings.HasPrefix(arg.Value, "/") || len(arg.Value) < 2 {
		w.fail(op.span, "", "#xget wants a path such as /order/info/tariff")
		return
	}
	at := w.align(arg)
	column := 1
	for i, part := range strings.Split(arg.Value[1:], "/") {
		w.place = at[column]
		column += utf8.RuneCountInString(part) + 1
		name := strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		plain := exprName.MatchString(name) && !slices.Contains(exprWords, name)
		switch {
		case plain && i == 0:
			w.write(name)
		case plain:
			w.write("." + name)
		case i == 0:
			w.write("shared-state[" + quoteExpr(name) + "]")
		case exprIndex.MatchString(name):
			w.write("[" + name + "]")
		default:
			w.write("[" + quoteExpr(name) + "]")
		}
	}
}

// quoteExpr writes text as expressions do.
func quoteExpr(text string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for _, r := range text {
		switch {
		case r == '\'' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
