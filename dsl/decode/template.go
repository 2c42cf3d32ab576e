package decode

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/source"
	"procaas/dsl/syntax"
)

// This file replaces uses of templates by their handlers, before anything is checked. A part of a template
// keeps its position, and remembers the use. An argument keeps its position, and remembers its place in the
// template. So every finding has both.

// paramsRoot is the root of parameters in expressions of templates.
const paramsRoot = "params"

// A mould is an unexpanded template.
type mould struct {
	id         string
	at         diag.Span   // of the id
	parameters *expr.Value // schemas by name
	handler    *expr.Value
	size       *mouldSize // nil until a use is measured
}

// mouldsOf returns the templates of all files. The first one with an id counts.
func mouldsOf(given []*Reading) map[string]*mould {
	out := make(map[string]*mould)
	for _, r := range given {
		if r.Foreign {
			continue
		}
		for _, v := range r.Root.Get("templates").Items() {
			id, ok := v.Get("id").Text()
			if !ok || out[id] != nil {
				continue
			}
			out[id] = &mould{id: id, at: v.Get("id").Span, parameters: v.Get("parameters"), handler: v.Get("handler")}
		}
	}
	return out
}

// template checks the fields of a template. Its handler is checked where it is used.
func (d *decoder) template(v *expr.Value) {
	parameters, handler := v.Get("parameters"), v.Get("handler")
	if use := handler.Get("use"); use != nil {
		d.Errorf(use.Head(), rules.Template, "write out what it says", "a template uses no other template")
	}
	if id := handler.Get("id"); id != nil {
		d.Errorf(id.Head(), rules.Template, "delete it: each use has an id of its own", "the handler of a template has no id")
	}
	read := make(map[string]bool)
	handler.WalkExprs(func(e *expr.Expr) {
		for _, p := range paramsIn(e) {
			switch {
			case p.name == "":
				d.Errorf(e.Stretch(p.from, p.to), rules.Template, "write params.NAME", "a template reads its parameters one by one")
			case parameters.Get(p.name) == nil:
				known := make([]string, 0, len(parameters.Keys()))
				for _, k := range parameters.Keys() {
					known = append(known, k.Name)
				}
				d.Errorf(e.Stretch(p.from, p.to), rules.Template, diag.Choice(p.name, known, "the parameters are"), "the template has no parameter %s",
					datum.DescribeData(p.name))
			default:
				read[p.name] = true
			}
		}
	})
	for _, k := range parameters.Keys() {
		if !read[k.Name] && handler != nil {
			d.Report(diag.Diagnostic{
				Span: k.Span, Severity: diag.Warning, Code: rules.Template, Hint: "delete it, or write params." + k.Name + " in an expression",
				Message: fmt.Sprintf("the template never reads its parameter %q", k.Name),
			})
		}
	}
}

// A param is a read of a parameter in an expression. name is empty if templates do not support that kind of
// read.
type param struct {
	name     string
	from, to int
}

// paramsIn returns the parameters that an expression reads. compile reports invalid expressions.
func paramsIn(e *expr.Expr) []param {
	tokens, f := syntax.Scan(e.Source)
	if f != nil {
		return nil
	}
	var out []param
	for i, t := range tokens {
		if t.Kind != syntax.NameToken || t.Text != paramsRoot || i > 0 && tokens[i-1].Is(".", "?.") {
			continue
		}
		if i+1 < len(tokens) && tokens[i+1].Is(":") && i > 0 && tokens[i-1].Is("{", ",") {
			continue // a key of a mapping
		}
		p := param{from: t.From, to: t.To}
		if i+2 < len(tokens) && tokens[i+1].Is(".") && tokens[i+2].Kind == syntax.NameToken {
			p.name, p.to = tokens[i+2].Text, tokens[i+2].To
		}
		out = append(out, p)
	}
	return out
}

// expand replaces a use of a template by the template's handler.
func (d *decoder) expand(v *expr.Value) {
	use := v.Get("use")
	name, ok := use.Get("template").Text()
	if !ok {
		return // reported later, by the check of use
	}
	at := use.Get("template").Span
	p := d.templates[name]
	if p == nil {
		if !d.partial {
			d.Errorf(at, rules.Template, diag.Choice(name, diag.SortedKeys(d.templates), "the templates are"), "there is no template %s",
				datum.DescribeData(name))
		}
		return
	}
	if p.handler == nil || p.handler.Kind != expr.ValueMap {
		return // reported where it is declared
	}
	if why, refused := d.refused[v]; refused {
		if why != "" {
			d.Errorf(at, rules.TooLarge, "split the file, or use smaller templates", "%s once templates are expanded", why)
		}
		return
	}
	x := &expansion{decoder: d, mould: p, given: make(map[string]*expr.Value), via: &diag.Related{Span: at, Message: "template " + name +
		" is used here"}}
	x.gather(use)
	for i, k := range p.handler.Names {
		if k.Name == "id" || k.Name == "use" || v.Get(k.Name) != nil {
			continue
		}
		v.Names = append(slices.Clip(v.Names), x.key(k))
		v.Elems = append(slices.Clip(v.Elems), x.value(p.handler.Elems[i]))
	}
}

// An expansion builds the handler of one use.
type expansion struct {
	*decoder
	*mould
	given map[string]*expr.Value
	via   *diag.Related
}

// gather collects the parameters.
func (x *expansion) gather(use *expr.Value) {
	with := use.Get("with")
	var known []string
	for i, k := range x.parameters.Keys() {
		known = append(known, k.Name)
		value := with.Get(k.Name)
		if value == nil {
			value = x.parameters.Elems[i].Get("default")
		}
		if value == nil {
			x.Report(diag.Diagnostic{
				Span: use.Get("template").Head(), Code: rules.Template, Hint: "add with: {" + k.Name + ": …}, or add a default to its schema",
				Message: fmt.Sprintf("template %q needs the parameter %q", x.id, k.Name),
				Related: []diag.Related{{Span: k.Span, Message: "declared here"}},
			})
			value = &expr.Value{Span: use.Span}
		}
		x.given[k.Name] = value
	}
	for _, k := range with.Keys() {
		if !slices.Contains(known, k.Name) {
			x.Report(diag.Diagnostic{
				Span: k.Span, Code: rules.Template, Hint: diag.Choice(k.Name, known, "the parameters are"),
				Message: fmt.Sprintf("template %q has no parameter %s", x.id, datum.DescribeData(k.Name)),
				Related: []diag.Related{{Span: x.at, Message: "the template"}},
			})
		}
	}
}

func (x *expansion) span(at diag.Span) diag.Span {
	at.Via = x.via
	return at
}

func (x *expansion) key(k expr.Key) expr.Key { return expr.Key{Name: k.Name, Span: x.span(k.Span)} }

// value copies a value of the template and inserts parameters.
func (x *expansion) value(v *expr.Value) *expr.Value {
	out := &expr.Value{Span: x.span(v.Span), Kind: v.Kind, Scalar: v.Scalar, Secret: v.Secret}
	for _, k := range v.Names {
		out.Names = append(out.Names, x.key(k))
	}
	for _, item := range v.Elems {
		out.Elems = append(out.Elems, x.value(item))
	}
	if v.Kind == expr.ValueExpr {
		return x.expr(v, out)
	}
	return out
}

// expr inserts parameters into an expression. An expression that is only a parameter becomes its argument, of
// any type.
func (x *expansion) expr(v, out *expr.Value) *expr.Value {
	e := v.Computed
	var reads []param
	if x.given != nil {
		reads = paramsIn(e)
	}
	if len(reads) == 0 {
		out.Computed = &expr.Expr{Span: out.Span, Source: e.Source, At: e.At}
		return out
	}
	src := []rune(e.Source)
	if len(reads) == 1 && reads[0].from == 0 && reads[0].to == len(src) {
		if arg := x.given[reads[0].name]; arg != nil {
			return (&expansion{decoder: x.decoder, mould: x.mould, via: &diag.Related{Span: v.Span, Message: "template " + x.id +
				" puts it here"}}).value(arg)
		}
	}
	if inlinedSize(e, reads, x.given) > syntax.MaxSource {
		x.Errorf(x.span(e.Stretch(0, len(src))), rules.ExprTooLarge, "pass less to the template, or compute parts of it in a set handler before",
			"the expression is longer than 4 KiB once the parameters are inserted")
		return &expr.Value{Span: out.Span}
	}
	made := &expr.Expr{Span: out.Span}
	var text []rune
	var at []diag.Pos
	from := 0
	for _, p := range reads {
		arg := x.given[p.name]
		if arg == nil {
			continue // reported where the template is declared
		}
		text = append(text, src[from:p.from]...)
		at = e.At.Append(at, from, p.from)
		inserted := []rune(x.inline(arg, e.Stretch(p.from, p.to)))
		for i := range inserted {
			of := min(p.from+i, p.to-1)
			if i == len(inserted)-1 {
				of = p.to - 1
			}
			at = append(at, e.At.At(of))
		}
		text, from = append(text, inserted...), p.to
	}
	made.Source = string(append(text, src[from:]...))
	made.At = expr.Places(e.At.Append(at, from, e.At.Len()))
	out.Computed = made
	return out
}

// inline writes a value as part of an expression.
func (x *expansion) inline(v *expr.Value, at diag.Span) string {
	switch v.Kind {
	case expr.ValueExpr:
		if isName(v.Computed.Source) {
			return v.Computed.Source
		}
		return "(" + v.Computed.Source + ")"
	case expr.ValueSecret:
		x.Report(diag.Diagnostic{
			Span: v.Span, Code: rules.Template, Hint: "write only !$ params.NAME there in the template",
			Message: "a secret cannot be a part of an expression",
			Related: []diag.Related{{Span: at, Message: "template " + x.id + " puts it here"}},
		})
		return "null"
	case expr.ValueList:
		parts := make([]string, len(v.Elems))
		for i, item := range v.Elems {
			parts[i] = x.inline(item, at)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case expr.ValueMap:
		parts := make([]string, len(v.Elems))
		for i, item := range v.Elems {
			parts[i] = source.QuoteExpr(v.Names[i].Name) + ": " + x.inline(item, at)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	if text, ok := v.Scalar.(string); ok {
		return source.QuoteExpr(text)
	}
	return inlineNumber(v.Scalar)
}

// isName reports whether an expression is a name or a path of names, which needs no brackets around it.
func isName(text string) bool { return source.ExprName.MatchString(strings.ReplaceAll(text, ".", "")) }

// inlineNumber writes a number, a bool or null as part of an expression.
func inlineNumber(scalar any) string {
	text := datum.DescribeData(scalar)
	if strings.HasPrefix(text, "-") {
		return "(" + text + ")"
	}
	return text
}
