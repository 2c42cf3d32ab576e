package decode

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/source"
	"procaas/dsl/spec"
	"procaas/dsl/syntax"
	"procaas/dsl/tree"
)

// A decoder turns the values of one file into the structs of the language. First it checks them against the
// Spec. Then it fills the structs with everything that is valid.
type decoder struct {
	*source.Source
	types []tree.Type
	doc   *tree.Document
	file  *spec.Spec // of the top level; nil for a file without pipelines

	handlerSpec *spec.Spec
	stageSpec   *spec.Spec
	verifySpec  *spec.Spec

	undoSpec     *spec.Spec
	templateSpec *spec.Spec
	useSpec      *spec.Spec
	notifySpec   *spec.Spec

	bodies map[*expr.Value]*handlerBody // by checked handler

	templates map[string]*mould
	refused   map[*expr.Value]string // uses that would create too much: see [boundUses]
	partial   bool                   // there may be further templates in unreadable files

	levels []around // mappings around the current one, outermost first
}

func (d *decoder) document(v *expr.Value) {
	spec := d.doc.Language.File()
	d.file = spec
	d.handlerSpec = spec.Field("handlers").Elem.Spec
	d.stageSpec = spec.Field("pipelines").Elem.Spec.Field("stages").Elem.Spec
	d.verifySpec = d.handlerSpec.Field("on-unknown").Spec.Field("verify").Spec
	d.undoSpec = d.handlerSpec.Field("compensate").Spec
	d.templateSpec = spec.Field("templates").Elem.Spec
	d.useSpec = d.handlerSpec.Field("use").Spec
	d.notifySpec = spec.Field("pipelines").Elem.Spec.Field("notify").Elem.Spec
	d.bodies = map[*expr.Value]*handlerBody{}
	if v.IsNull() {
		return
	}
	if v.Kind != expr.ValueMap {
		d.Errorf(v.Head(), rules.Kind, "begin with one of "+strings.Join(spec.Names(), ", "), "a file must be a mapping, this one is %s",
			v.Describe())
		return
	}
	d.object(v, spec, "file", allowance{})
	d.fill(d.doc, spec, v)
	for _, p := range d.doc.Pipelines {
		p.AddFinally()
	}
}

// An allowance says what a place accepts in addition to literals.
type allowance struct {
	body     bool // the body of a handler, which accepts !secret NAME
	noExpr   bool // no expressions, even if the field allows them
	noSecret bool // no secrets, even in the body of a handler
}

// anything is the field of a value that no Spec describes.
var anything = &spec.Field{IsValue: true}

// check checks a value against its field. name is that of the nearest field with a name.
func (d *decoder) check(v *expr.Value, f *spec.Field, name string, may allowance) {
	may.noExpr = may.noExpr || f.NoExpr
	f = f.Of(v)
	switch v.Kind {
	case expr.ValueExpr:
		if may.noExpr || !may.body && !f.IsValue && !f.Live {
			hint := "write the value itself"
			if f.ExprKind == datum.SecretKind {
				hint = "write !secret NAME"
			}
			d.Errorf(v.Span, rules.NoExpr, cmp.Or(exprBelowHint(f, name), hint), "field %q takes no expression: it is fixed "+
				"before anything runs", name)
		}
	case expr.ValueSecret:
		d.secretAllowed(v, f, name, may)
	case expr.ValueLiteral:
		d.literal(v, f, name)
	case expr.ValueList:
		elem := f.Elem
		if f.Kind == datum.AnyKind && (f.ExprKind == datum.AnyKind || f.ExprKind == datum.ListKind) {
			elem = anything
		} else if f.Kind != datum.ListKind {
			d.wrongKind(v, f, name)
			return
		}
		for _, item := range v.Elems {
			d.element(item, elem, name, may)
		}
	case expr.ValueMap:
		switch {
		case f.Kind == datum.ObjectKind:
			// The fields below say whether they accept expressions.
			d.object(v, f.Spec, name, allowance{body: may.body, noSecret: may.noSecret})
		case f.Kind == datum.MapKind:
			d.entries(v, f.Elem, may)
		case f.Kind == datum.AnyKind && (f.ExprKind == datum.AnyKind || f.ExprKind == datum.MapKind || f.ExprKind == datum.SchemaKind):
			d.entries(v, anything, may)
		default:
			d.wrongKind(v, f, name)
		}
	}
}

// element checks one element of a list. Null is an element only where any value is.
func (d *decoder) element(v *expr.Value, f *spec.Field, name string, may allowance) {
	if v.IsNull() && f.Kind != datum.AnyKind {
		d.wrongKind(v, f, name)
		return
	}
	d.check(v, f, name, may)
}

// entries checks the values of a mapping with arbitrary names.
func (d *decoder) entries(v *expr.Value, f *spec.Field, may allowance) {
	for i, item := range v.Elems {
		d.check(item, f, v.Names[i].Name, may)
	}
}

// object checks a mapping with the fields of a Spec. name is what authors call it. Parts of the language have
// the names of their structs.
func (d *decoder) object(v *expr.Value, s *spec.Spec, name string, may allowance) {
	switch s {
	case d.handlerSpec, d.verifySpec, d.undoSpec:
		d.handler(v, s)
		return
	case d.stageSpec:
		d.expandStage(v)
	case d.templateSpec:
		d.template(v)
	}
	key := name // of the mapping
	if !may.body && s != d.file {
		name = spec.Kebab(s.Name)
	}
	defer d.enter(s, name, key)()
	inline := s.InlineField()
	for i, k := range v.Names {
		switch f := s.Field(k.Name); {
		case f != nil:
			in := may
			in.body = in.body || s == d.templateSpec && f.Name == "handler" || s == d.useSpec && f.Name == "with" ||
				s == d.notifySpec && f.Name == "secret"
			d.check(v.Elems[i], f, k.Name, in)
		case inline != nil:
			d.check(v.Elems[i], inline.Elem, k.Name, allowance{may.body, may.noExpr || inline.NoExpr, may.noSecret})
		case s == d.stageSpec && (d.handlerSpec.Field(k.Name) != nil || d.ofBody(k.Name)):
			d.Errorf(k.Span, rules.UnknownField, "write it below handlers:", "field %q belongs to a handler, not to a stage", k.Name)
		default:
			d.unknownField(v, i, s, name)
		}
	}
	if d.insteadOf(v, s, name) == "" { // else the report of the unknown field names it
		d.required(v, s, name)
	}
}

// required reports missing fields, except misspelled ones, which are reported as unknown.
func (d *decoder) required(v *expr.Value, s *spec.Spec, name string) {
	for _, f := range missing(v, s, name) {
		d.Errorf(v.Head(), rules.Missing, "add "+f+":", "the %s has no %q", name, f)
	}
}

// missing lists the required fields of a mapping that are not there, except misspelled ones.
func missing(v *expr.Value, s *spec.Spec, name string) (missing []string) {
	misspelled := func(f *spec.Field) bool {
		return slices.ContainsFunc(v.Names, func(k expr.Key) bool {
			if s.Field(k.Name) != nil {
				return false
			}
			hint := foreignHint(k.Name, name, s)
			return hint == "write "+f.Name+":" || hint == "" && diag.Suggest(k.Name, s.Names()) == f.Name
		})
	}
	for _, f := range s.Fields {
		if f.Required && v.Get(f.Name).IsNull() && (s.Inline || !misspelled(f)) {
			missing = append(missing, f.Name)
		}
	}
	return missing
}

// insteadOf returns the only missing field of a mapping with only one field that nothing explains, or "". Its author
// probably meant the one by the other. A stage may have the fields of its handler, which are explained.
func (d *decoder) insteadOf(v *expr.Value, s *spec.Spec, name string) string {
	if s.Inline || s == d.stageSpec {
		return ""
	}
	unexplained := 0
	for _, k := range v.Names {
		if s.Field(k.Name) == nil {
			unexplained++
			if foreignHint(k.Name, name, s) != "" || diag.Suggest(k.Name, s.Names()) != "" {
				return ""
			}
		}
	}
	if unexplained != 1 { // so it is for a mapping without a mistake
		return ""
	}
	if all := missing(v, s, name); len(all) == 1 {
		return all[0]
	}
	return ""
}

func (d *decoder) wrongKind(v *expr.Value, f *spec.Field, name string) {
	kind := f.Kind
	if kind == datum.AnyKind {
		kind = f.ExprKind
	}
	want := datum.Wants[kind]
	switch {
	case f.Names:
		want = "a name or a list of names"
	case len(f.Enum) > 0:
		want = datum.OrList(f.Enum)
	}
	d.Errorf(v.Head(), rules.Kind, shapeHint(v, f, name), "field %q: want %s, have %s", name, want, v.Describe())
}

// secretAllowed reports a !secret where none is allowed.
func (d *decoder) secretAllowed(v *expr.Value, f *spec.Field, name string, may allowance) {
	switch {
	case f.ExprKind == datum.SecretKind:
	case f.Pattern == "file":
		d.Errorf(v.Span, rules.Secret, "write the name of the file alone", "field %q: want %s", name, datum.TextForms[f.Pattern].Want)
	case !may.body, may.noSecret:
		d.Errorf(v.Span, rules.Secret, "",
			"field %q: a secret may only stand in the body of a handler that calls a service, such as below request, or below auth "+
				"of a service", name)
	case may.noExpr || f.Kind != datum.AnyKind && f.Kind != datum.StringKind && !f.Names:
		d.Errorf(v.Span, rules.Secret, "", "field %q: want %s, a secret is text known only at run time", name, datum.Wants[f.Kind])
	}
}

// literal checks a scalar. Null means that the field is not set.
func (d *decoder) literal(v *expr.Value, f *spec.Field, name string) {
	if v.Scalar == nil {
		return
	}
	var err error
	switch {
	case f.Names:
		if !f.IsName(v.Scalar) {
			d.wrongKind(v, f, name)
			return
		}
		_, err = f.Elem.Scalar(v.Scalar)
	case len(f.Words) > 0:
		d.word(v, f, name)
		return
	case f.Kind == datum.AnyKind && f.ExprKind == datum.AnyKind:
	case f.Kind == datum.AnyKind && f.ExprKind < datum.ListKind:
		_, err = datum.Convert(f.ExprKind, v.Scalar)
	case f.Kind >= datum.ListKind || f.Kind == datum.AnyKind:
		d.wrongKind(v, f, name)
	default:
		_, err = f.Scalar(v.Scalar)
	}
	if err != nil {
		d.Errorf(v.Span, rules.Value, cmp.Or(literalHint(v.Scalar, f), exprHint(v, f)), "field %q: %s", name, err)
	}
}

// word checks a literal that replaces a mapping.
func (d *decoder) word(v *expr.Value, f *spec.Field, name string) {
	text, _ := v.Scalar.(string)
	if slices.Contains(f.Words, text) {
		return
	}
	hint := diag.DidYouMean(text, slices.Concat(f.Words, f.Spec.Names()), "")
	d.Errorf(v.Span, rules.Value, hint, "field %q: want %s or a mapping with %s, have %s",
		name, strings.Join(f.Words, ", "), strings.Join(f.Spec.Names(), ", "), v.Describe())
}

// literalHint returns how to fix a literal of the wrong kind.
func literalHint(data any, f *spec.Field) string {
	kind := f.Kind
	if kind == datum.AnyKind {
		kind = f.ExprKind
	}
	switch x := data.(type) {
	case int, float64, bool:
		if kind == datum.StringKind && len(f.Enum) == 0 && !datum.TextForms[f.Pattern].Numbers {
			return "put it in quotes: " + strconv.Quote(datum.DescribeData(x))
		}
		if kind == datum.DurationKind {
			if n, ok := x.(int); ok && n >= 100 {
				return "add a unit, such as " + datum.DescribeData(x) + "ms" // such a number of seconds is unlikely
			}
			return "add a unit, such as " + datum.DescribeData(x) + "s"
		}
		if kind == datum.RateKind {
			return "add the period, such as " + datum.DescribeData(x) + "/s"
		}
	case string:
		switch strings.ToLower(x) {
		case "yes", "on", "y":
			if kind == datum.BoolKind {
				return "write true"
			}
		case "no", "off", "n":
			if kind == datum.BoolKind {
				return "write false"
			}
		}
		words := f.Enum
		if kind == datum.JitterKind {
			words = []string{datum.FullJitter, datum.DecorrelatedJitter}
		}
		return cmp.Or(diag.DidYouMean(x, words, ""), scalarHint(x, f, kind))
	}
	return ""
}

// exprHint returns how to make a text an expression, if it reads a member of a root and can be parsed.
func exprHint(v *expr.Value, f *spec.Field) string {
	text, _ := v.Scalar.(string)
	if m := wholePlaceholder.FindStringSubmatch(text); m != nil {
		text = strings.TrimSpace(m[1])
	}
	s := &expr.Scope{Roots: append(slices.Clone(expr.Roots), expr.InputsRoot)}
	if !v.Plain || f.NoExpr || !s.MayMean(text) {
		return ""
	}
	if tree, flaw := syntax.Parse(text); flaw != nil || !s.Means(tree, tree.Root) {
		return ""
	}
	return "write !$ " + text
}

// wholePlaceholder is a text that consists of one placeholder of another tool.
var wholePlaceholder = regexp.MustCompile(`^\$?\{\{?([^{}]+)\}\}?$`)
