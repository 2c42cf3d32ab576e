package source

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/syntax"
)

const blockHint = "write the expression as a block: !$ | and the expression on the next line, indented"

// Value converts a node to a value. It reports what YAML allows but the language does not, and replaces it by
// null.
func (s *Source) Value(n *yaml.Node) *expr.Value {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.SequenceNode:
		return s.list(n)
	case yaml.MappingNode:
		return s.mapping(n)
	default:
		return s.scalar(n)
	}
}

func (s *Source) list(n *yaml.Node) *expr.Value {
	v := &expr.Value{Kind: expr.ValueList}
	if !s.collectionTag(n, "!!seq") {
		return &expr.Value{Span: s.NodeSpan(n)}
	}
	var last diag.Pos
	for _, child := range n.Content {
		item := s.Value(child)
		last = s.end(child, item.Span)
		v.Elems = append(v.Elems, item)
	}
	v.Span = s.Closed(n, last)
	return v
}

func (s *Source) mapping(n *yaml.Node) *expr.Value {
	if !s.collectionTag(n, "!!map") {
		return &expr.Value{Span: s.NodeSpan(n)}
	}
	if op, arg := s.V1Whole(n); op != nil && !s.Foreign {
		return s.v1Value(op, arg)
	}
	size := len(n.Content) / 2
	v := &expr.Value{Kind: expr.ValueMap, Names: slices.Grow([]expr.Key(nil), size), Elems: slices.Grow([]*expr.Value(nil), size)}
	var last diag.Pos
	given := names{of: v}
	cut := false // the value before is an expression that YAML cuts off
	for i := 0; i+1 < len(n.Content); i += 2 {
		value := n.Content[i+1]
		if cut && value.Kind == yaml.ScalarNode && value.Tag == "!!null" && value.Value == "" {
			last = s.end(n.Content[i], s.NodeSpan(n.Content[i]))
			continue // the rest of that expression
		}
		key, op, ok := s.key(n.Content[i])
		var item *expr.Value
		if op == nil {
			item = s.Value(value)
		} else {
			item = s.v1Value(op, value)
		}
		cut = value.Tag == "!$" && item.Kind == expr.ValueLiteral
		if ok && op == nil {
			s.glued(n.Content[i], value, key)
		}
		last = s.end(value, item.Span)
		if !ok {
			continue
		}
		if at, again := given.find(key.Name); again {
			s.Report(diag.Diagnostic{
				Span: key.Span, Code: rules.DuplicateKey, Hint: "keep one of them",
				Message: "the key " + strconv.Quote(key.Name) + " is given twice",
				Related: []diag.Related{{Span: at, Message: "first given here"}},
			})
			continue
		}
		v.Names = append(v.Names, key)
		v.Elems = append(v.Elems, item)
	}
	v.Span = s.Closed(n, last)
	return v
}

// names finds the keys of a mapping while it is read.
type names struct {
	of     *expr.Value
	byName map[string]diag.Span // of the first keys of a large mapping; nil for a small one, where looking at each is faster
	noted  int                  // how many byName has
}

// smallMapping is how many keys a small mapping has.
const smallMapping = 16

// find returns the place of a key that the mapping has so far.
func (n *names) find(name string) (at diag.Span, ok bool) {
	if len(n.of.Names) <= smallMapping {
		for _, k := range n.of.Names {
			if k.Name == name {
				return k.Span, true
			}
		}
		return at, false
	}
	if n.byName == nil {
		n.byName = make(map[string]diag.Span, cap(n.of.Names))
	}
	for ; n.noted < len(n.of.Names); n.noted++ {
		k := n.of.Names[n.noted]
		n.byName[k.Name] = k.Span
	}
	at, ok = n.byName[name]
	return at, ok
}

// key reads the key of an entry: its name, and the operator of the first version, if any.
func (s *Source) key(n *yaml.Node) (k expr.Key, op *V1Op, ok bool) {
	at := s.NodeSpan(n)
	switch {
	case n.Kind == yaml.AliasNode:
		s.Errorf(at, rules.Key, "write the key itself", "an alias cannot be a key")
		return k, nil, false
	case n.Kind != yaml.ScalarNode:
		s.Errorf(at, rules.Key, s.Lines.braces(n), "a key must be text, this one is a %s", map[yaml.Kind]string{
			yaml.SequenceNode: "list",
			yaml.MappingNode:  "mapping",
		}[n.Kind])
		return k, nil, false
	case n.Tag == "!!merge":
		s.Errorf(at, rules.MergeKey, "repeat the entries, or name the whole mapping with an anchor", "merge keys are not supported")
		return k, nil, false
	case n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!str":
		s.Errorf(at, rules.Key, "", "a key must be text without a tag, this one has %s", n.Tag)
		return k, nil, false
	}
	if IsQuoted(n) || n.Style&yaml.TaggedStyle != 0 {
		return expr.Key{Name: n.Value, Span: at}, nil, s.text(n, at)
	}
	if s.Foreign {
		return expr.Key{Name: n.Value, Span: at}, nil, s.text(n, at)
	}
	if !isPlainText(n.Value) {
		data, _ := PlainScalar(n.Value)
		s.Errorf(at, rules.Key, "put it in quotes: "+strconv.Quote(n.Value), "a key must be text, this one is %s", datum.DescribeData(data))
		return k, nil, false
	}
	name, op := V1Key(s, n)
	if op != nil {
		at.End = diag.Pos{Line: at.Start.Line, Column: at.Start.Column + utf8.RuneCountInString(name)}
	}
	return expr.Key{Name: name, Span: at}, op, s.text(n, at)
}

// glued warns of {order:1}: without a space behind the colon, all of it is the key.
func (s *Source) glued(n, value *yaml.Node, key expr.Key) {
	front, behind, ok := strings.Cut(key.Name, ":")
	if !ok || IsQuoted(n) || value.Kind != yaml.ScalarNode || value.Value != "" || value.Style != 0 ||
		front == "" || behind == "" || strings.HasPrefix(behind, "/") {
		return
	}
	s.Report(diag.Diagnostic{
		Span: key.Span, Severity: diag.Warning, Code: rules.GluedKey, Hint: "write " + front + ": " + behind + ", or put the key in quotes",
		Message: fmt.Sprintf("the colon has no space behind it, so %q is the key, and its value is null", key.Name),
	})
}

// changes warns of an unquoted scalar whose text is not what JSON has for it.
func (s *Source) changes(n *yaml.Node, v *expr.Value) {
	if n.Value == "" || n.Value == "~" {
		return // nobody means text by them
	}
	if _, isText := v.Scalar.(string); isText {
		return
	}
	raw, err := datum.FormatJSON(v.Scalar)
	if err != nil || string(raw) == n.Value {
		return
	}
	hint := "write " + strconv.Quote(n.Value) + " for text, or " + string(raw)
	message := n.Value + " is read as " + string(raw)
	switch _, isInt := v.Scalar.(int); {
	case isInt && syntax.LeadingZero(n.Value):
		if octal, err := strconv.ParseInt(n.Value, 8, 64); err == nil {
			hint = fmt.Sprintf("write %q for text, or %d for the octal number", n.Value, octal)
		}
		message = n.Value + " is read as the decimal number " + string(raw)
	case v.Scalar == nil, v.Scalar == true, v.Scalar == false:
	default:
		hint += " for the number"
		message = n.Value + " is read as the number " + string(raw)
	}
	s.Report(diag.Diagnostic{Span: v.Span, Severity: diag.Warning, Code: rules.LeadingZero, Hint: hint, Message: message})
}

// text refuses U+0000, which no store can keep.
func (s *Source) text(n *yaml.Node, at diag.Span) bool {
	if strings.ContainsRune(n.Value, 0) {
		s.Errorf(at, rules.Encoding, "", "text cannot hold the character U+0000")
		return false
	}
	return true
}

// IsQuoted reports whether a scalar is written in quotes or as a block.
func IsQuoted(n *yaml.Node) bool {
	return n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
}

func (s *Source) scalar(n *yaml.Node) *expr.Value {
	v := &expr.Value{}
	isExpr := n.Tag == "!$" && n.Style&yaml.TaggedStyle != 0
	v.Span = s.NodeSpan(n)
	if !s.text(n, v.Span) {
		return v
	}
	problem := ""
	switch {
	case isExpr:
		s.expression(n, v)
	case n.Tag == "!secret" && n.Style&yaml.TaggedStyle != 0:
		s.secret(n, v)
	case n.Style&yaml.TaggedStyle != 0 && !strings.Contains("!!str !!int !!float !!bool !!null", n.Tag):
		s.unknownTag(n)
	case n.Style&yaml.TaggedStyle != 0:
		v.Scalar, problem = taggedScalar(n.Tag, n.Value)
	case IsQuoted(n) || s.startsWith(n, '!'):
		v.Scalar = n.Value
		if strings.HasPrefix(n.Value, "!$ ") {
			s.Report(diag.Diagnostic{
				Span: v.Span, Severity: diag.Warning, Code: rules.ExprTrap, Hint: "put the tag before the quote, or " + blockHint,
				Message: "this is text, not an expression: the tag stands inside it",
			})
		}
	default:
		v.Scalar, problem = PlainScalar(n.Value)
		_, v.Plain = v.Scalar.(string)
		if problem == "" {
			s.changes(n, v)
		}
	}
	if problem != "" {
		s.Errorf(v.Span, rules.Number, "write it in quotes if it is text", "%s", problem)
	}
	return v
}

func (s *Source) startsWith(n *yaml.Node, r rune) bool {
	c := Cursor{Lines: s.Lines, Line: n.Line - 1, Column: n.Column - 1}
	return c.Rune() == r
}

// secret reads !secret NAME.
func (s *Source) secret(n *yaml.Node, v *expr.Value) {
	tag := s.tagSpan(n)
	v.Span.Start = tag.Start
	if n.Value == "" {
		v.Span.End = tag.End
	}
	if !datum.TextForms["secret"].Expr.MatchString(n.Value) {
		s.Errorf(v.Span, rules.Secret, "write !secret NAME", "want the name of a secret: %s", datum.TextForms["secret"].Want)
		return
	}
	v.Kind, v.Secret = expr.ValueSecret, n.Value
}

// collectionTag reports whether a list or mapping has no foreign tag.
func (s *Source) collectionTag(n *yaml.Node, own string) bool {
	if n.Style&yaml.TaggedStyle == 0 || n.Tag == own {
		return true
	}
	s.unknownTag(n)
	return false
}

// unknownTag reports an unknown tag. A !$ before a list or a mapping was meant as the beginning of an
// expression.
func (s *Source) unknownTag(n *yaml.Node) {
	at := s.tagSpan(n)
	switch {
	case n.Tag == "!$" && n.Kind == yaml.SequenceNode:
		s.Errorf(at, rules.ExprTrap, s.trapHint(at.Start), "YAML reads this as a list, not as an expression")
	case n.Tag == "!$" && n.Kind == yaml.MappingNode:
		s.Errorf(at, rules.ExprTrap, s.trapHint(at.Start), "YAML reads this as a mapping, not as an expression")
	case strings.HasPrefix(n.Tag, "!$"):
		s.Errorf(at, rules.ExprTrap, "put a space after !$", "YAML reads %s as the name of a tag", n.Tag)
	default:
		s.Errorf(at, rules.UnknownTag, "the tags are !$ for expressions and !secret for the names of secrets", "unknown tag %s", n.Tag)
	}
}

// NodeSpan returns the position of a node. For a scalar it includes the quotes, but not tag and anchor. For a list or
// mapping it ends with the first line.
func (s *Source) NodeSpan(n *yaml.Node) diag.Span {
	switch n.Kind {
	case yaml.AliasNode:
		start := diag.Pos{Line: n.Line, Column: n.Column}
		return s.at(start, diag.Pos{Line: n.Line, Column: n.Column + 1 + utf8.RuneCountInString(n.Value)})
	case yaml.ScalarNode:
		if at, ok := s.plainly(n); ok {
			return at
		}
		return s.ScalarSpan(n, s.Align(n))
	}
	start := diag.Pos{Line: n.Line, Column: n.Column}
	end := diag.Pos{Line: n.Line, Column: n.Column + 1}
	if n.Line <= len(s.Lines) {
		end.Column = max(end.Column, len(s.Lines[n.Line-1])+1)
	}
	return s.at(start, end)
}

// ScalarSpan returns the position of a scalar. at has the positions of its runes.
func (s *Source) ScalarSpan(n *yaml.Node, at []diag.Pos) diag.Span {
	start, end := at[0], at[len(at)-1]
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		c := &Cursor{Lines: s.Lines, Line: n.Line - 1, Column: n.Column - 1}
		c.SkipProperties()
		start = c.Pos()
		end.Column++
	}
	return s.at(start, end)
}

// tagSpan returns the position of a node's tag.
func (s *Source) tagSpan(n *yaml.Node) diag.Span {
	c := &Cursor{Lines: s.Lines, Line: n.Line - 1, Column: n.Column - 1}
	if c.Rune() == '&' {
		c.skipProperty()
	}
	start := c.Pos()
	for r := c.Rune(); r != EOF && !IsBlank(r); r = c.Rune() {
		c.Next()
	}
	return s.at(start, c.Pos())
}

// Closed returns the position of a list or mapping, up to its last item or its closing bracket.
func (s *Source) Closed(n *yaml.Node, last diag.Pos) diag.Span {
	c := &Cursor{Lines: s.Lines, Line: n.Line - 1, Column: n.Column - 1}
	c.SkipProperties()
	span := s.at(c.Pos(), last)
	if n.Style&yaml.FlowStyle == 0 {
		return span
	}
	if len(n.Content) > 0 {
		c.Line, c.Column = last.Line-1, last.Column-1
	} else {
		c.Next()
	}
	for IsBlank(c.Rune()) || c.Rune() == ',' || c.Rune() == '#' {
		if c.Rune() == '#' {
			c.Line, c.Column = c.Line+1, 0
			continue
		}
		c.Next()
	}
	if r := c.Rune(); r == ']' || r == '}' {
		c.Next()
		span.End = c.Pos()
	}
	return span
}

// end returns where the last item of a collection ends; at is where the item's
// value stands, which is elsewhere for an alias.
func (s *Source) end(n *yaml.Node, at diag.Span) diag.Pos {
	if n.Kind == yaml.AliasNode {
		return s.NodeSpan(n).End
	}
	return at.End
}
