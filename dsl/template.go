package dsl

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// This file puts the handlers of templates where they are used, before anything is
// checked. What comes from a template keeps its place there, and remembers where it is
// used; what a use gives keeps its place, and remembers where the template puts it. So
// every finding names both.

// paramsRoot is what expressions of templates call their parameters.
const paramsRoot = "params"

// A mould is a template as it was written.
type mould struct {
	id         string
	at         diag.Span // of the id
	parameters *Value    // schemas by name
	handler    *Value
}

// mouldsOf finds the templates of all files; the first one of an id counts.
func mouldsOf(given []*reading) map[string]*mould {
	out := make(map[string]*mould)
	for _, r := range given {
		if r.contract {
			continue
		}
		for _, v := range r.root.Get("templates").Items() {
			id, ok := v.Get("id").text()
			if !ok || out[id] != nil {
				continue
			}
			out[id] = &mould{id: id, at: v.Get("id").Span, parameters: v.Get("parameters"), handler: v.Get("handler")}
		}
	}
	return out
}

// template checks what a template says about itself. What its handler says is checked
// where it is used.
func (d *decoder) template(v *Value) {
	parameters, handler := v.Get("parameters"), v.Get("handler")
	if use := handler.Get("use"); use != nil {
		d.errorf(head(use), rules.Template, "write out what it says", "a template uses no other template")
	}
	if id := handler.Get("id"); id != nil {
		d.errorf(head(id), rules.Template, "delete it: each use has an id of its own", "the handler of a template has no id")
	}
	read := make(map[string]bool)
	handler.walkExprs(func(e *Expr) {
		for _, p := range paramsIn(e) {
			switch {
			case p.name == "":
				d.errorf(e.span(p.from, p.to), rules.Template, "write params.NAME", "a template reads its parameters one by one")
			case parameters.Get(p.name) == nil:
				known := make([]string, 0, len(parameters.Keys()))
				for _, k := range parameters.Keys() {
					known = append(known, k.Name)
				}
				d.errorf(e.span(p.from, p.to), rules.Template, choice(p.name, known, "the parameters are"), "the template has no parameter %s", describeData(p.name))
			default:
				read[p.name] = true
			}
		}
	})
	for _, k := range parameters.Keys() {
		if !read[k.Name] && handler != nil {
			d.report(diag.Diagnostic{
				Span: k.Span, Severity: diag.Warning, Code: rules.Template, Hint: "delete it, or write params." + k.Name + " in an expression",
				Message: fmt.Sprintf("the template never reads its parameter %q", k.Name),
			})
		}
	}
}

// A param is where an expression reads a parameter. The name is empty when it does so
// in a way that a template does not.
type param struct {
	name     string
	from, to int
}

// paramsIn finds the parameters that the text of an expression reads. One that is no
// expression is left to compile.
func paramsIn(e *Expr) []param {
	tokens, f := scan(e.Source)
	if f != nil {
		return nil
	}
	var out []param
	for i, t := range tokens {
		if t.kind != nameToken || t.text != paramsRoot || i > 0 && tokens[i-1].is(".", "?.") {
			continue
		}
		if i+1 < len(tokens) && tokens[i+1].is(":") && i > 0 && tokens[i-1].is("{", ",") {
			continue // the key of a mapping
		}
		p := param{from: t.from, to: t.to}
		if i+2 < len(tokens) && tokens[i+1].is(".") && tokens[i+2].kind == nameToken {
			p.name, p.to = tokens[i+2].text, tokens[i+2].to
		}
		out = append(out, p)
	}
	return out
}

// expand puts the handler of a template into a handler that uses one.
func (d *decoder) expand(v *Value) {
	use := v.Get("use")
	name, ok := use.Get("template").text()
	if !ok {
		return // reported when use is checked
	}
	at := use.Get("template").Span
	p := d.templates[name]
	if p == nil {
		if !d.partial {
			d.errorf(at, rules.Template, choice(name, diag.SortedKeys(d.templates), "the templates are"), "there is no template %s", describeData(name))
		}
		return
	}
	if p.handler == nil || p.handler.kind != valueMap {
		return // reported where it is declared
	}
	x := &expansion{decoder: d, mould: p, given: make(map[string]*Value), via: &diag.Related{Span: at, Message: "template " + name + " is used here"}}
	x.gather(use)
	for i, k := range p.handler.keys {
		if k.Name == "id" || k.Name == "use" || v.Get(k.Name) != nil {
			continue
		}
		v.keys = append(slices.Clip(v.keys), x.key(k))
		v.items = append(slices.Clip(v.items), x.value(p.handler.items[i]))
	}
}

// An expansion makes the handler of one use.
type expansion struct {
	*decoder
	*mould
	given map[string]*Value
	via   *diag.Related
}

// gather finds what the parameters are.
func (x *expansion) gather(use *Value) {
	with := use.Get("with")
	var known []string
	for i, k := range x.parameters.Keys() {
		known = append(known, k.Name)
		value := with.Get(k.Name)
		if value == nil {
			value = x.parameters.items[i].Get("default")
		}
		if value == nil {
			x.report(diag.Diagnostic{
				Span: head(use.Get("template")), Code: rules.Template, Hint: "add with: {" + k.Name + ": …}, or give its schema a default",
				Message: fmt.Sprintf("template %q needs the parameter %q", x.id, k.Name),
				Related: []diag.Related{{Span: k.Span, Message: "declared here"}},
			})
			value = &Value{Span: use.Span}
		}
		x.given[k.Name] = value
	}
	for _, k := range with.Keys() {
		if !slices.Contains(known, k.Name) {
			x.report(diag.Diagnostic{
				Span: k.Span, Code: rules.Template, Hint: choice(k.Name, known, "the parameters are"),
				Message: fmt.Sprintf("template %q has no parameter %s", x.id, describeData(k.Name)),
				Related: []diag.Related{{Span: x.at, Message: "the template"}},
			})
		}
	}
}

func (x *expansion) span(at diag.Span) diag.Span {
	at.Via = x.via
	return at
}

func (x *expansion) key(k Key) Key { return Key{k.Name, x.span(k.Span)} }

// value copies a value of the template with the parameters in their places.
func (x *expansion) value(v *Value) *Value {
	if x.expanded++; x.expanded > maxValues {
		if x.expanded == maxValues+1 {
			x.errorf(x.via.Span, rules.TooLarge, "split the file, or use smaller templates", "more than %d values once templates are expanded", maxValues)
		}
		return &Value{Span: v.Span}
	}
	out := &Value{Span: x.span(v.Span), kind: v.kind, literal: v.literal, secret: v.secret}
	for _, k := range v.keys {
		out.keys = append(out.keys, x.key(k))
	}
	for _, item := range v.items {
		out.items = append(out.items, x.value(item))
	}
	if v.kind == valueExpr {
		return x.expr(v, out)
	}
	return out
}

// expr puts parameters into an expression. One that is nothing but a parameter becomes
// what was given, whatever that is.
func (x *expansion) expr(v, out *Value) *Value {
	e := v.expr
	reads := paramsIn(e)
	src := []rune(e.Source)
	if len(reads) == 1 && reads[0].from == 0 && reads[0].to == len(src) {
		if arg := x.given[reads[0].name]; arg != nil {
			return (&expansion{decoder: x.decoder, mould: x.mould, via: &diag.Related{Span: v.Span, Message: "template " + x.id + " puts it here"}}).value(arg)
		}
	}
	made := &Expr{Span: out.Span}
	var text []rune
	from := 0
	for _, p := range reads {
		arg := x.given[p.name]
		if arg == nil {
			continue // reported where the template is declared
		}
		text = append(text, src[from:p.from]...)
		made.at = append(made.at, e.at[from:p.from]...)
		inserted := []rune(x.inline(arg, e.span(p.from, p.to)))
		for i := range inserted {
			at := min(p.from+i, p.to-1)
			if i == len(inserted)-1 {
				at = p.to - 1
			}
			made.at = append(made.at, e.at[at])
		}
		text, from = append(text, inserted...), p.to
	}
	made.Source = string(append(text, src[from:]...))
	made.at = append(made.at, e.at[from:]...)
	out.expr = made
	return out
}

// inline writes a value as a part of an expression.
func (x *expansion) inline(v *Value, at diag.Span) string {
	switch v.kind {
	case valueExpr:
		if exprName.MatchString(strings.ReplaceAll(v.expr.Source, ".", "")) {
			return v.expr.Source
		}
		return "(" + v.expr.Source + ")"
	case valueSecret:
		x.report(diag.Diagnostic{
			Span: v.Span, Code: rules.Template, Hint: "let the template say nothing but !$ params.NAME there",
			Message: "a secret cannot be a part of an expression", Related: []diag.Related{{Span: at, Message: "template " + x.id + " puts it here"}},
		})
		return "null"
	case valueList:
		parts := make([]string, len(v.items))
		for i, item := range v.items {
			parts[i] = x.inline(item, at)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case valueMap:
		parts := make([]string, len(v.items))
		for i, item := range v.items {
			parts[i] = quoteExpr(v.keys[i].Name) + ": " + x.inline(item, at)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	if text, ok := v.literal.(string); ok {
		return quoteExpr(text)
	}
	if text := describeData(v.literal); !strings.HasPrefix(text, "-") {
		return text
	}
	return "(" + describeData(v.literal) + ")"
}

// checkTemplates makes the schemas of parameters ready, and warns of templates that
// nobody uses: nothing of what their handlers say has been checked.
func (c *checker) checkTemplates() {
	used := make(map[string]bool)
	eachHandler(c.bundle, func(h *Handler) {
		if h.Use != nil {
			used[h.Use.Template] = true
		}
	})
	for _, t := range c.bundle.Templates {
		t.contracts = make(map[string]*Contract)
		for i, k := range t.Parameters.Keys() {
			schema := t.Parameters.items[i]
			if !c.isSchema(schema, k.Name) {
				continue
			}
			contract := c.ready.contract(schema, fmt.Sprintf("parameter %s of template %s", k.Name, t.ID))
			t.contracts[k.Name] = contract
			if preset := schema.Get("default"); preset != nil {
				if data, ok := preset.Literal(); ok {
					c.checkFixed(contract, preset, data, preset.Span)
				}
			}
		}
		if t.ID != "" && !used[t.ID] && !c.partial {
			c.Warnf(t.places.of("id", t.Span), rules.Template, "delete it, or use it: nothing of its handler is checked until then", "nobody uses template %q", t.ID)
		}
	}
}

// eachHandler visits all handlers of a bundle.
func eachHandler(b *Bundle, visit func(*Handler)) {
	for _, p := range b.Pipelines {
		for _, s := range p.Stages {
			for _, h := range s.Handlers {
				visit(h)
			}
		}
	}
	for _, h := range b.Detached {
		visit(h)
	}
}

// checkUse holds what a use gives against the schemas of the parameters.
func (c *pipelineCheck) checkUse(h *Handler) {
	if h.Use == nil {
		return
	}
	t := c.templates[h.Use.Template]
	if t == nil {
		return // reported when it was read
	}
	for i, k := range h.Use.With.Keys() {
		if contract := t.contracts[k.Name]; contract != nil {
			c.fits(h.Use.With.items[i], contract, contract.Name)
		}
	}
}
