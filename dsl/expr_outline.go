package dsl

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// This file checks expressions against what is known of the values that they
// read. What contradicts a schema is an error; what contradicts only what other
// expressions give is a warning.

// doubt reports what contradicts an outline.
func (b *builder) doubt(n ast.Node, o *outline, code diag.Code, hint, format string, args ...any) {
	d := diag.Diagnostic{Span: b.span(n), Code: code, Hint: hint, Message: fmt.Sprintf(format, args...)}
	if o.at != (diag.Span{}) {
		d.Related = []diag.Related{{Span: o.at, Message: "its schema"}}
	}
	if d.Severity = diag.Error; o.inferred {
		d.Severity = diag.Warning
	}
	b.failed = b.failed || d.Severity == diag.Error
	b.reporter.Report(d)
}

// known is the outline of a part: at least its types.
func (p part) known() *outline {
	if p.outline != nil {
		return p.outline
	}
	return ofShape(p.shape).supposed()
}

// with gives a part an outline. Types that a schema promises count as those of
// the part itself.
func (p part) with(o *outline) part {
	p.outline = o
	if o != nil && !o.inferred && o.shape&p.shape != 0 {
		p.shape &= o.shape
	}
	return p
}

// solid reports a part that may be null where that would fail, and goes on as if
// it were not.
func (b *builder) solid(n ast.Node, p part) part {
	o := p.outline
	if !o.nullable() {
		return p
	}
	if at := b.trackOf(n); o.why != "" && !b.told[at.key] {
		b.reportNull(n, o, at)
	}
	if p.shape&^nullShape != 0 {
		p.shape &^= nullShape
	}
	p.outline = o.present()
	return p
}

// reportNull reports a value that may be null. Each path is told of once.
func (b *builder) reportNull(n ast.Node, o *outline, at track) {
	if at.key != "" {
		b.told[at.key] = true
	}
	text := b.text(n)
	b.doubt(n, o, rules.ExprMaybeNull, fmt.Sprintf("give a default: %s ?? …, or test it before: %s != null and …", text, text),
		"%s may be null: %s", text, o.why)
}

// reportNullBase reports a member of what may be null.
func (b *builder) reportNullBase(n ast.Node, o *outline, at track, member string) {
	if at.key != "" {
		b.told[at.key] = true
	}
	text := b.baseText(n)
	b.doubt(n, o, rules.ExprMaybeNull, fmt.Sprintf("write %s?.%s, give a default with ??, or test it before: %s != null and …", text, member, text),
		"%s may be null, and null has no member %s: %s", text, member, o.why)
}

// path follows the links of a chain through what is known of its base. The track
// is that of the base.
func (b *builder) path(o *outline, at track, links []link) *outline {
	null := false // something on the way may be null, which ends the chain
	for _, l := range links {
		o = b.narrowed(o, at.key).told()
		if o == nil {
			at = at.step(b.elementKey(l.prop))
			continue
		}
		if o.nullable() {
			if !l.safe && o.why != "" && !b.told[at.key] {
				b.reportNullBase(l.base, o, at, b.memberText(l))
			}
			null = null || l.safe
			o = o.present()
		}
		at = at.step(b.elementKey(l.prop))
		o = b.take(o, l)
	}
	o = b.narrowed(o, at.key).told()
	if null {
		if fact := b.narrowed(&outline{shape: anyShape}, at.key); fact.shape&nullShape != 0 {
			o = o.absent("something before ?. may be null")
		}
	}
	return o
}

// told forgets of a value that it is null when that is the business of the proof
// of degradation: it has not been set yet.
func (o *outline) told() *outline {
	if o != nil && o.shape == nullShape && o.why == "" {
		return nil
	}
	return o
}

// memberText is what a link names, for messages.
func (b *builder) memberText(l link) string {
	if key, ok := b.literal(l.prop); ok {
		return key
	}
	return "[" + b.text(l.prop) + "]"
}

// take gives what is known of one member of a value that is not null.
func (b *builder) take(o *outline, l link) *outline {
	key, named := b.literal(l.prop)
	if !named {
		return b.element(o, l)
	}
	if o.shape&mapShape == 0 {
		hint := ""
		if o.shape&listShape != 0 {
			hint = cmp.Or(lengthHint(key, b.text(l.base)), "take an element first: [0], or map("+b.text(l.base)+", #."+key+")")
		}
		b.doubt(l.node, o, rules.ExprOperand, hint, "%s is %s; it has no member %s", b.baseText(l.base), o.shape, key)
		return nil
	}
	m := o.members[key]
	switch {
	case m != nil && m.required:
		return m.outline
	case m != nil:
		return m.lacked("its schema does not require it")
	case !o.closed:
		return o.rest.lacked("not every mapping has the key " + key)
	}
	hint := "it has " + strings.Join(o.memberNames(), ", ")
	if meant := diag.DidYouMean(key, o.memberNames(), ""); meant != "" {
		hint = meant
	} else if len(o.members) == 0 {
		hint = "it is empty"
	}
	b.doubt(l.prop, o, rules.ExprUnknownField, hint, "%s has no member %s", b.baseText(l.base), key)
	return nil
}

// element gives what is known of a list's element, or of a member whose name is
// computed.
func (b *builder) element(o *outline, l link) *outline {
	switch {
	case o.shape == listShape:
		return o.elem
	case o.shape == mapShape && len(o.members) == 0 && !o.closed:
		return o.rest.lacked("not every mapping has such a key")
	case o.shape&(listShape|mapShape|stringShape) == 0:
		b.doubt(l.node, o, rules.ExprOperand, "", "%s is %s; it has no members", b.baseText(l.base), o.shape)
	}
	return nil
}

// rooted gives what is known of a chain that begins with a root, and the links
// that lead there.
func (b *builder) rooted(root string, links []link) (o *outline, used int) {
	name := func(i int) string {
		if i >= len(links) {
			return ""
		}
		key, _ := b.literal(links[i].prop)
		return key
	}
	switch {
	case root == "event" && name(0) == "payload":
		return b.scope.payload, 1
	case root == stateRoot && name(0) != "":
		return b.scope.known[name(0)], 1
	case root == "configs" && name(0) != "":
		return b.scope.configOutlines[name(0)], 1
	case root == "sources" && name(1) == "response":
		return b.scope.responses[name(0)], 2
	case root == "item":
		return b.scope.item, 0
	case root == inputsRoot:
		return b.scope.inputs, 0
	}
	return nil, 0
}

// outlineOfChain gives what is known of a chain.
func (b *builder) outlineOfChain(base ast.Node, from part, links []link) *outline {
	at := b.baseTrack(base)
	id, isName := base.(*ast.IdentifierNode)
	if !isName || b.local(b.name(id)) != nil {
		return b.path(from.outline, at, links)
	}
	name := b.name(id)
	if !b.scope.has(name) {
		return b.path(b.scope.known[name], at, links)
	}
	o, used := b.rooted(name, links)
	for _, l := range links[:used] {
		at = at.step(b.elementKey(l.prop))
	}
	return b.path(o, at, links[used:])
}

// checkEquality warns of a comparison that always has the same result.
func (b *builder) checkEquality(x *ast.BinaryNode, l, r part) {
	if !mayEqual(l.shape, r.shape) && l.outline == nil && r.outline == nil {
		b.reporter.Warnf(b.span(x), rules.ExprNeverEqual, "", "%s never equals %s", l.shape, r.shape)
		return
	}
	always := map[bool]string{true: "always true", false: "always false"}
	equal := x.Operator == "=="
	if l.fixed && r.fixed {
		b.reporter.Warnf(b.span(x), rules.ExprConstant, "compare something that can change", "both sides are fixed: this never changes")
		return
	}
	lo, ro := l.known(), r.known()
	if lo.mayBe(ro) {
		return
	}
	side, other, o := x.Left, ro, lo
	if l.fixed {
		side, other, o = x.Right, lo, ro
	}
	if other.shape == nullShape {
		b.reporter.Warnf(b.span(x), rules.ExprConstant, "drop the test", "%s is never null: this is %s", b.text(side), always[!equal])
		return
	}
	b.reporter.Warnf(b.span(x), rules.ExprNeverEqual, b.nearWord(o, other), "%s is %s, never %s: this is %s", b.text(side), o, other, always[!equal])
}

// nearWord suggests the value that was probably meant.
func (b *builder) nearWord(of, other *outline) string {
	if words := other.textWords(); len(words) == 1 {
		return diag.DidYouMean(words[0], of.textWords(), "'")
	}
	return ""
}

// checkIn warns of an in that always has the same result.
func (b *builder) checkIn(x *ast.BinaryNode, l, r part) {
	lo, ro := l.known(), r.known()
	switch {
	case ro == nil:
	case l.fixed && r.fixed:
		b.reporter.Warnf(b.span(x), rules.ExprConstant, "compare something that can change", "both sides are fixed: this never changes")
	case ro.shape == listShape && ro.elem == nil && r.fixed:
		b.reporter.Warnf(b.span(x), rules.ExprImpossibleIn, "", "nothing is in an empty list: this is always false")
	case ro.shape == listShape && !lo.mayBe(ro.elem):
		b.reporter.Warnf(b.span(x), rules.ExprImpossibleIn, b.nearWord(lo, ro.elem), "%s is %s, and the list holds only %s: this is always false",
			b.text(x.Left), lo, ro.elem)
	case ro.shape == listShape:
		b.checkInWords(x, l, ro)
	case ro.shape == mapShape:
		b.checkInMap(x, l, ro)
	}
}

// checkInWords warns of elements of a fixed list that can never match.
func (b *builder) checkInWords(x *ast.BinaryNode, l part, r *outline) {
	list, ok := x.Right.(*ast.ArrayNode)
	o := l.outline
	if !ok || o == nil || o.words == nil {
		return
	}
	for _, n := range list.Nodes {
		w, ok := scalarNode(n)
		if !ok || containsWord(o.words, w) {
			continue
		}
		b.reporter.Warnf(b.span(n), rules.ExprImpossibleIn, b.nearWord(o, outlineOf(w)), "%s is %s, never %s", b.text(x.Left), o, describeData(w))
	}
}

// checkInMap is about 'key' in x.
func (b *builder) checkInMap(x *ast.BinaryNode, l part, r *outline) {
	key, ok := b.literal(x.Left)
	if !ok {
		return
	}
	m := r.members[key]
	switch {
	case m == nil && r.closed:
		hint := "it has " + strings.Join(r.memberNames(), ", ")
		hint = cmp.Or(diag.DidYouMean(key, r.memberNames(), "'"), hint)
		b.reporter.Warnf(b.span(x), rules.ExprImpossibleIn, hint, "the schema of %s has no key %s", b.text(x.Right), key)
	case m != nil && m.required && !r.inferred:
		b.reporter.Warnf(b.span(x), rules.ExprConstant, "drop the test", "%s always has the key %s", b.text(x.Right), key)
	}
}

// baseText is the text of what a member is taken of: a leading dot stands for #.
func (b *builder) baseText(n ast.Node) string {
	if text := b.text(n); text != "." {
		return text
	}
	return "#"
}

// placed checks the whole expression against what its place takes.
func (b *builder) placed(root part, want Kind) part {
	if want == BoolKind {
		root = b.solid(b.root, root) // elsewhere, null is the same as nothing
	}
	fits := shapeOf(want)
	if o := root.outline; o != nil && o.shape&^nullShape != 0 && o.shape&fits == 0 {
		b.doubt(b.root, o, rules.ExprUnfit, "", "want %s here, have %s", fits, o.shape)
	}
	return root
}

// lasting keeps the facts that other expressions of the handler may rely on:
// those about roots.
func (b *builder) lasting(facts []fact) []fact {
	var out []fact
	for _, f := range facts {
		root, _, _ := strings.Cut(f.key, between)
		if isRoot(root) && !strings.Contains(f.key, "[") {
			out = append(out, f)
		}
	}
	return out
}

// checkLoop warns of a body that is the same for each element.
func (b *builder) checkLoop(x *ast.BuiltinNode, body ast.Node) {
	first, last := b.outer(body)
	if _, isMap := body.(*ast.MapNode); !isMap && first > 0 && b.tokens[first-1].is("{") && b.tokens[first-1].pair == last+1 {
		b.reporter.Warnf(b.span(body), rules.ExprLoopBody, "write {name: …} for a mapping, or drop the braces",
			"the braces only stand around the body of %s: they make no mapping", x.Name)
		return
	}
	if b.touchesItem(body) {
		return
	}
	hint := "write # for the element, such as #.name"
	if id, ok := body.(*ast.IdentifierNode); ok {
		hint = "write #." + b.name(id) + " for the member of the element"
	}
	b.reporter.Warnf(b.span(body), rules.ExprLoopBody, hint, "the body of %s does not look at the element: it is the same for each", x.Name)
}

// touchesItem tells whether an expression reads the element of the innermost
// loop.
func (b *builder) touchesItem(n ast.Node) bool {
	finder := &itemFinder{}
	ast.Walk(&n, finder)
	return finder.found
}

// An itemFinder looks for #, #index and #acc, those of loops inside included:
// they would be checked themselves.
type itemFinder struct{ found bool }

// Visit implements [ast.Visitor].
func (f *itemFinder) Visit(n *ast.Node) {
	if _, ok := (*n).(*ast.PointerNode); ok {
		f.found = true
	}
}
