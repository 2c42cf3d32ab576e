package source

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

// In the first version of the language, an operator follows a # in a key, and its arguments are below. This
// file converts operators to expressions of the second version. Each rune keeps its original position.

// V1Operators are the operators of the first version.
var V1Operators = []string{"and", "contains", "not", "or", "xget"}

// A V1Op is an operator of the first version with its position.
type V1Op struct {
	Name string
	span diag.Span
}

// v1Name matches keys such as enabled#and and #not.
var v1Name = regexp.MustCompile(`^([^#\s]*)#([a-z][a-z0-9-]*)$`)

// V1Key splits an unquoted key into its name and its operator, or nil.
func V1Key(s *Source, n *yaml.Node) (name string, op *V1Op) {
	if !strings.Contains(n.Value, "#") {
		return n.Value, nil // as nearly all
	}
	m := v1Name.FindStringSubmatch(n.Value)
	if m == nil || IsQuoted(n) && (m[1] != "" || !slices.Contains(V1Operators, m[2])) {
		return n.Value, nil
	}
	span := s.NodeSpan(n)
	if IsQuoted(n) {
		return m[1], &V1Op{m[2], span} // for #op, YAML needs quotes
	}
	span.Start.Column += utf8.RuneCountInString(m[1])
	return m[1], &V1Op{m[2], span}
}

// V1Whole reports whether a mapping is only an operator with its arguments: its single key is value#op or #op.
func (s *Source) V1Whole(n *yaml.Node) (op *V1Op, arg *yaml.Node) {
	if len(n.Content) != 2 || n.Content[0].Kind != yaml.ScalarNode {
		return nil, nil
	}
	name, op := V1Key(s, n.Content[0])
	if op == nil || name != "" && name != "value" {
		return nil, nil
	}
	return op, n.Content[1]
}

// v1Bare matches lines that end in an operator without a colon, as in the oldest examples of the language.
var v1Bare = regexp.MustCompile(`(?m)^([ -]*[\w.-]+#(?:and|contains|not|or))[ \t]*\r?$`)

// addV1Colons adds missing colons after operators at the end of a line, with a warning. It reports whether
// there were any. No position changes.
func (s *Source) addV1Colons() bool {
	mended := v1Bare.ReplaceAll(s.Data, []byte("$1:"))
	if len(mended) == len(s.Data) && bytes.Equal(mended, s.Data) {
		return false
	}
	for i, line := range s.Lines {
		if text := strings.TrimRight(string(line), " \t"); v1Bare.MatchString(text) {
			at := diag.Pos{Line: i + 1, Column: utf8.RuneCountInString(text) + 1}
			s.Report(diag.Diagnostic{Span: s.at(at, at), Severity: diag.Warning, Code: rules.V1, Hint: "write " + strings.TrimLeft(text, " -") +
				":", Message: "the colon behind the operator is missing"})
		}
	}
	s.Data, s.Colons = mended, true
	return true
}

// v1Value compiles an operator and its argument to an expression.
func (s *Source) v1Value(op *V1Op, arg *yaml.Node) *expr.Value {
	w := &V1Writer{Source: s}
	span := s.v1Span(arg)
	w.place = span.Start
	w.operator(op, arg)
	if w.failed {
		return &expr.Value{Span: span}
	}
	w.at = append(w.at, span.End)
	return &expr.Value{Kind: expr.ValueExpr, Span: span, Computed: &expr.Expr{Source: string(w.Text), Span: span, At: expr.Places(w.at)}}
}

// v1Span returns the position of an argument.
func (s *Source) v1Span(n *yaml.Node) diag.Span {
	span := s.NodeSpan(n)
	for n.Kind != yaml.AliasNode && len(n.Content) > 0 {
		n = n.Content[len(n.Content)-1]
		span.End = s.NodeSpan(n).End
	}
	return span
}

// A V1Writer writes the text of an expression.
type V1Writer struct {
	*Source
	Text   []rune
	at     []diag.Pos
	place  diag.Pos // of the current node
	failed bool
}

func (w *V1Writer) write(text string) {
	for _, r := range text {
		w.Text = append(w.Text, r)
		w.at = append(w.at, w.place)
	}
}

func (w *V1Writer) fail(at diag.Span, hint, format string, args ...any) {
	w.failed = true
	w.Errorf(at, rules.V1, hint, format, args...)
}

func (w *V1Writer) operator(op *V1Op, arg *yaml.Node) {
	if arg.Kind == yaml.AliasNode {
		arg = arg.Alias
	}
	switch op.Name {
	case "and", "or":
		w.chain(op, arg)
	case "not":
		w.not(arg)
	case "contains":
		w.contains(op, arg)
	case "xget":
		w.Get(op, arg)
	default:
		hint := diag.Choice(op.Name, V1Operators, "the operators are")
		switch op.Name {
		case "any", "some": // similar to and in spelling, but they mean or
			hint = "did you mean or? the operators are " + strings.Join(V1Operators, ", ")
		case "all", "every":
			hint = "did you mean and? the operators are " + strings.Join(V1Operators, ", ")
		}
		hint += "; put the key in quotes if the # belongs to its name"
		w.fail(op.span, hint, "unknown operator %s", datum.DescribeData("#"+op.Name))
	}
}

// chain writes #and and #or: a list of conditions.
func (w *V1Writer) chain(op *V1Op, arg *yaml.Node) {
	if arg.Kind != yaml.SequenceNode || len(arg.Content) == 0 {
		w.fail(op.span, "", "#%s wants a list of conditions", op.Name)
		return
	}
	for i, c := range arg.Content {
		if i > 0 {
			w.write(" " + op.Name + " ")
		}
		w.parenthesised(c)
	}
}

// not writes #not: one condition, or a list of one.
func (w *V1Writer) not(arg *yaml.Node) {
	if arg.Kind == yaml.SequenceNode && len(arg.Content) == 1 {
		arg = arg.Content[0]
	}
	w.write("not ")
	w.parenthesised(arg)
}

// contains writes #contains: haystack contains needle.
func (w *V1Writer) contains(op *V1Op, arg *yaml.Node) {
	var haystack, needle func()
	if arg.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(arg.Content); i += 2 {
			key, value := arg.Content[i], arg.Content[i+1]
			name, inner := V1Key(w.Source, key)
			part := func() { w.argument(inner, value) }
			switch name {
			case "haystack":
				haystack = part
			case "needle":
				needle = part
			default:
				w.fail(w.NodeSpan(key), "", "#contains takes haystack and needle, not %s", name)
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

// argument writes a part whose key may have an operator.
func (w *V1Writer) argument(op *V1Op, value *yaml.Node) {
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

// parenthesised writes a value in parentheses, unless it needs none.
func (w *V1Writer) parenthesised(n *yaml.Node) {
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
		if op, arg := w.V1Whole(n); op != nil {
			w.argument(op, arg)
			return
		}
		w.object(n)
	default:
		w.ScalarText(n)
	}
}

func (w *V1Writer) list(n *yaml.Node) {
	w.write("[")
	for i, c := range n.Content {
		if i > 0 {
			w.write(", ")
		}
		w.parenthesised(c)
	}
	w.write("]")
}

func (w *V1Writer) object(n *yaml.Node) {
	w.write("{")
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, op, ok := w.key(n.Content[i])
		w.failed = w.failed || !ok
		if i > 0 {
			w.write(", ")
		}
		w.write(QuoteExpr(key.Name) + ": ")
		w.argument(op, n.Content[i+1])
	}
	w.write("}")
}

// ScalarText writes a literal, or an expression of the second version unchanged.
func (w *V1Writer) ScalarText(n *yaml.Node) {
	v := w.scalar(n)
	if v.Kind == expr.ValueSecret {
		w.fail(v.Span, "", "a secret cannot stand in an expression")
		return
	}
	if v.Kind == expr.ValueExpr {
		w.write("(")
		w.Text = append(w.Text, []rune(v.Computed.Source)...)
		w.at = v.Computed.At.Append(w.at, 0, v.Computed.At.Len()-1)
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
		w.write(QuoteExpr(x))
	}
}

// Names that need no quotes in expressions, and words with another meaning there.
var (
	ExprName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(-[A-Za-z0-9_]+)*$`)
	exprIndex = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})$`)
	exprWords = []string{
		"and", "or", "not", "in", "if", "else", "let", "nil", "true", "false", "True", "False", "None", "matches",
		"contains", "startsWith", "endsWith",
	}
)

// Get writes #xget: a path such as /order/info/tariff.
func (w *V1Writer) Get(op *V1Op, arg *yaml.Node) {
	if arg.Kind != yaml.ScalarNode || !strings.HasPrefix(arg.Value, "/") || len(arg.Value) < 2 {
		w.fail(op.span, "", "#xget wants a path such as /order/info/tariff")
		return
	}
	at := w.Align(arg)
	column := 1
	for i, part := range strings.Split(arg.Value[1:], "/") {
		w.place = at[column]
		column += utf8.RuneCountInString(part) + 1
		name := strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		plain := ExprName.MatchString(name) && !slices.Contains(exprWords, name)
		switch {
		case plain && i == 0:
			w.write(name)
		case plain:
			w.write("." + name)
		case i == 0:
			w.write("shared-state[" + QuoteExpr(name) + "]")
		case exprIndex.MatchString(name):
			w.write("[" + name + "]")
		default:
			w.write("[" + QuoteExpr(name) + "]")
		}
	}
}

// QuoteExpr quotes text as expressions do.
func QuoteExpr(text string) string {
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
