package expr

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/ops"
	"procaas/dsl/rules"
	"procaas/dsl/typing"
)

// This file checks expressions against the types of the values that they read. A contradiction to a schema is
// an error. A contradiction to inferred types is a warning.

// checks compare the parts of an expression with their types.
type checks struct {
	names

	told    map[track]bool // paths with a reported null; nil for none
	doubted bool           // an error says that the types contradict a schema
}

// doubt reports a contradiction to an outline. It is fail with the outline as an additional parameter.
func (b *checks) doubt(n ast.Node, o *typing.Outline, code diag.Code, hint, format string, args ...any) {
	d := diag.Diagnostic{Span: b.span(n), Code: code, Hint: hint, Message: fmt.Sprintf(format, args...)}
	if o.At != (diag.Span{}) {
		d.Related = []diag.Related{{Span: o.At, Message: "its schema"}}
	}
	d.Severity = diag.Error
	if o.Inferred {
		d.Severity = diag.Warning
	}
	d.Runs = true
	b.doubted = b.doubted || d.Severity == diag.Error
	b.reporter.Report(d)
}

// known returns the outline of a part. It has at least its types.
func (p part) known() *typing.Outline {
	if p.outline != nil {
		return p.outline
	}
	if p.shape == datum.AnyShape || p.shape == 0 {
		return nil
	}
	return &typing.Outline{Shape: p.shape, Inferred: true}
}

// have is the word before one type of a part in messages.
func (p part) have() string {
	if len(p.known().Each()) > 1 {
		return "may have"
	}
	return "have"
}

// with sets the outline of a part. Types that a schema promises become types of the part.
func (p part) with(o *typing.Outline) part {
	p.outline = o
	if o != nil && !o.Inferred && o.Shape&p.shape != 0 {
		p.shape &= o.Shape
	}
	return p
}

// solid reports a part that may be null where null fails. It then continues as if the part were not null.
func (b *checks) solid(n ast.Node, p part) part {
	o := p.outline
	if !o.Nullable() {
		return p
	}
	if at := b.trackOf(n); o.Why != "" && !b.told[at] {
		b.reportNull(n, o, at)
	}
	if p.shape&^datum.NullShape != 0 {
		p.shape &^= datum.NullShape
	}
	p.outline = o.Present()
	return p
}

// tell notes that a null of a path is reported.
func (b *checks) tell(at track) {
	if at == "" {
		return
	}
	if b.told == nil {
		b.told = map[track]bool{}
	}
	b.told[at] = true
}

// reportNull reports a value that may be null, once per path.
func (b *checks) reportNull(n ast.Node, o *typing.Outline, at track) {
	b.tell(at)
	text := b.Text(n)
	b.doubt(n, o, rules.ExprMaybeNull, b.readWithDefault(n, o),
		"%s may be null: %s", text, o.Why)
}

// reportNullBase reports link i of a chain, which is a member of a value that may be null.
func (b *checks) reportNullBase(links []link, i int, o *typing.Outline, at track) {
	n := links[i].base
	b.tell(at)
	text, member := b.baseText(n), b.memberText(links[i])
	b.doubt(n, o, rules.ExprMaybeNull, b.readThrough(links, i),
		"%s may be null, and null has no member %s: %s", text, member, o.Why)
}

// path follows the links of a chain through the outline of its base. at is the track of the base.
func (b *checks) path(o *typing.Outline, at track, links []link) *typing.Outline {
	null := false // a null on the way ends the chain
	whole := b.along(at, links)
	for i, l := range links {
		o = b.beside(b.narrowed(o, at), at).Told()
		here := at
		if at != "" {
			at = whole[:len(at)+len(Between)+len(b.elementKey(l.prop))]
		}
		if o == nil {
			continue
		}
		if o.Nullable() {
			if !l.safe && o.Why != "" && !b.told[here] {
				b.reportNullBase(links, i, o, here)
			}
			null = null || l.safe
			o = o.Present()
		}
		if len(o.Undescribed) > 0 {
			b.checkElementStatus(o, here, l)
			o = nil
			continue
		}
		o = b.take(o, l)
	}
	o = b.beside(b.narrowed(o, at), at).Told()
	if null {
		if fact := b.narrowed(&typing.Outline{Shape: datum.AnyShape}, at); fact.Shape&datum.NullShape != 0 {
			o = o.Absent("something before ?. may be null")
		}
	}
	return o
}

// beside returns the outline without null if a test of the member beside the value excludes it.
func (b *checks) beside(o *typing.Outline, at track) *typing.Outline {
	if o == nil || o.Unless == "" || at == "" {
		return o
	}
	other := at[:strings.LastIndex(string(at), Between)+1] + track(o.Unless)
	if b.narrowed(&typing.Outline{Shape: datum.AnyShape}, other).Shape != datum.NullShape {
		return o
	}
	present := o.Present()
	if len(o.Undescribed) > 0 {
		present = present.Absent("") // such a reply may have no body
	}
	return present
}

// checkElementStatus warns of a member of an element that may be the body of a status without a schema.
func (b *checks) checkElementStatus(o *typing.Outline, at track, l link) {
	status := at[:strings.LastIndex(string(at), Between)+1] + "status"
	i := slices.IndexFunc(o.Undescribed, func(s string) bool { return !b.excluded(status, s) })
	if i < 0 || o.Shape&datum.StringShape == 0 || b.told[status] {
		return
	}
	if at != "" {
		b.tell(status)
	}
	base := b.baseText(l.base)
	hint := fmt.Sprintf("test its type first: type(%s) == 'map'; or write on-failure: collect, and test the status of the element", base)
	if element, ok := strings.CutSuffix(base, ".response"); ok {
		hint = fmt.Sprintf("test the status first: %s.status == 200", cmp.Or(element, "#"))
	}
	b.reporter.Warnf(b.span(l.node), rules.ExprOperand, hint,
		"%s may be the body of a %s, which no schema describes: it may be text or null, which has no member %s",
		base, o.Undescribed[i], b.memberText(l))
}

// memberText returns the text of a link, for messages.
func (b *checks) memberText(l link) string {
	if key, ok := b.Literal(l.prop); ok {
		return key
	}
	return "[" + b.Text(l.prop) + "]"
}

// take returns the outline of a member of a value that is not null.
func (b *checks) take(o *typing.Outline, l link) *typing.Outline {
	key, named := b.Literal(l.prop)
	if !named {
		return b.element(o, l)
	}
	if o.Shape&datum.MapShape == 0 {
		hint := ""
		if o.Shape&datum.ListShape != 0 {
			hint = cmp.Or(lengthHint(key, b.Text(l.base)), "take an element first: [0], or map("+b.Text(l.base)+", #."+key+")")
		}
		b.doubt(l.node, o, rules.ExprOperand, hint, "%s is %s; it has no member %s", b.baseText(l.base), o.Shape, key)
		return nil
	}
	m := o.Members[key]
	switch {
	case m != nil && m.Required:
		return m.Outline
	case m != nil:
		return m.Lacked("its schema does not require it")
	case !o.Closed:
		return o.Rest.Lacked("not every mapping has the key " + key)
	}
	hint := "it has " + strings.Join(o.MemberNames(), ", ")
	if meant := diag.DidYouMean(key, o.MemberNames(), ""); meant != "" {
		hint = meant
	} else if len(o.Members) == 0 {
		hint = "it is empty"
	}
	b.doubt(l.prop, o, rules.ExprUnknownField, hint, "%s has no member %s", b.baseText(l.base), key)
	return nil
}

// element returns the outline of a list's element, or of a member with a computed name.
func (b *checks) element(o *typing.Outline, l link) *typing.Outline {
	switch {
	case o.Shape == datum.ListShape:
		return o.Elem
	case o.Shape == datum.MapShape && len(o.Members) == 0 && !o.Closed:
		return o.Rest.Lacked("not every mapping has such a key")
	case o.Shape&(datum.ListShape|datum.MapShape|datum.StringShape) == 0:
		b.doubt(l.node, o, rules.ExprOperand, "", "%s is %s; it has no members", b.baseText(l.base), o.Shape)
	}
	return nil
}

// rooted returns the outline of a chain that begins with a root, and how many links it covers.
func (b *names) rooted(root string, links []link) (o *typing.Outline, used int) {
	name := func(i int) string {
		if i >= len(links) {
			return ""
		}
		key, _ := b.Literal(links[i].prop)
		return key
	}
	switch {
	case root == "event" && name(0) == "payload":
		return b.scope.Payload, 1
	case root == StateRoot && name(0) != "":
		return b.scope.Known[name(0)], 1
	case root == "configs" && name(0) != "":
		return b.scope.ConfigOutlines[name(0)], 1
	case root == "sources" && name(1) == "response":
		return b.scope.Responses[name(0)], 2
	case root == "sources" && name(1) == "outcome" && len(links) == 2:
		return outcomes, 2
	case root == "item":
		return b.scope.Item, 0
	case root == InputsRoot:
		return b.scope.Inputs, 0
	case root == "run" && b.scope.Final && name(0) == "error":
		return b.runError(), 1
	case root == "run" && b.scope.Final && name(0) == "status" && len(links) == 1:
		return ends, 1
	}
	return b.scope.Outlines[root], 0
}

// What the engine itself puts into names. A comparison with anything else can never hold.
var (
	outcomes = &typing.Outline{Shape: datum.StringShape, Words: []any{"succeeded", "failed", "skipped", "running", "waiting", "unknown"}, Inferred: true}
	ends     = &typing.Outline{Shape: datum.StringShape, Words: []any{"succeeded", "failed", "cancelled"}, Inferred: true}
)

// runError returns the outline of run.error. Only a failed run has one for sure: somebody may have cancelled another one.
func (b *names) runError() *typing.Outline {
	status := b.narrowed(ends, track("run").step("status"))
	if len(status.Words) == 1 && status.Words[0] == "failed" {
		return runFailure
	}
	return runFailure.Absent("a run that succeeded, or that somebody cancelled, has none")
}

// outlineOfChain returns the outline of a chain.
func (b *checks) outlineOfChain(base ast.Node, from part, links []link) *typing.Outline {
	at := b.baseTrack(base)
	id, isName := base.(*ast.IdentifierNode)
	if !isName || b.local(b.Name(id)) != nil {
		return b.path(from.outline, at, links)
	}
	name := b.Name(id)
	if !b.scope.has(name) {
		return b.path(b.scope.Known[name], at, links)
	}
	o, used := b.rooted(name, links)
	if b.checkStatus(name, links) && (len(links) == used || links[used].safe) {
		o = nil // it may be text or null
	}
	return b.path(o, b.along(at, links[:used]), links[used:])
}

// checkStatus reports whether a chain reads a response that may be the body of a status without a schema. It warns if the
// chain reads a member of it.
func (b *checks) checkStatus(root string, links []link) bool {
	if root != "sources" || len(links) < 2 {
		return false
	}
	id, _ := b.Literal(links[0].prop)
	if part, _ := b.Literal(links[1].prop); part != "response" {
		return false
	}
	if len(b.scope.Undescribed[id]) == 0 {
		return false
	}
	of := track(root).step(id)
	tested := b.narrowed(&typing.Outline{Shape: datum.AnyShape}, of.step("response"))
	i := slices.IndexFunc(b.scope.Undescribed[id], func(s string) bool { return !b.excluded(of.step("status"), s) })
	if i < 0 || tested.Shape&datum.StringShape == 0 {
		return false
	}
	if at := of.step("status"); len(links) > 2 && !b.told[at] {
		b.tell(at)
		b.reporter.Warnf(b.span(links[2].node), rules.ExprOperand,
			fmt.Sprintf("test the status first, in enabled or here: sources.%s.status == 200", id),
			"%s may be the body of a %s, which no schema describes: it may be text or null, which has no member %s",
			b.Text(links[2].base), b.scope.Undescribed[id][i], b.memberText(links[2]))
	}
	return true
}

// excluded reports whether a test excludes a status, or a class such as 4xx. A test such as status < 400 counts, whatever
// its number is.
func (b *names) excluded(at track, status string) bool {
	is := func(w any) bool {
		text := fmt.Sprint(w)
		return text == status || strings.HasSuffix(status, "xx") && strings.HasPrefix(text, status[:1])
	}
	compared, values := false, false
	for _, f := range slices.Concat(b.scope.Facts, b.facts) {
		switch {
		case f.Key != string(at):
		case f.Words != nil && !slices.ContainsFunc(f.Words, is), slices.ContainsFunc(f.Not, func(w any) bool { return fmt.Sprint(w) == status }):
			return true
		case f.Words != nil || f.Not != nil:
			values = true
		default:
			compared = true
		}
	}
	return compared && !values
}

// checkEquality warns of a comparison that always has the same result.
func (b *checks) checkEquality(x *ast.BinaryNode, l, r part) {
	if !ops.MayEqual(l.shape, r.shape) && l.outline == nil && r.outline == nil {
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
	if lo.MayBe(ro) {
		return
	}
	side, other, o := x.Left, ro, lo
	if l.fixed {
		side, other, o = x.Right, lo, ro
	}
	if other.Shape == datum.NullShape {
		b.reporter.Warnf(b.span(x), rules.ExprConstant, "drop the test", "%s is never null: this is %s", b.Text(side), always[!equal])
		return
	}
	b.reporter.Warnf(b.span(x), rules.ExprNeverEqual, nearWord(o, other), "%s is %s, never %s: this is %s", b.Text(side), o, other,
		always[!equal])
}

// nearWord suggests the value that was probably meant.
func nearWord(of, other *typing.Outline) string {
	if words := other.TextWords(); len(words) == 1 {
		return diag.DidYouMean(words[0], of.TextWords(), "'")
	}
	return ""
}

// checkIn warns of an in that always has the same result.
func (b *checks) checkIn(x *ast.BinaryNode, l, r part) {
	lo, ro := l.known(), r.known()
	switch {
	case ro == nil:
	case l.fixed && r.fixed:
		b.reporter.Warnf(b.span(x), rules.ExprConstant, "compare something that can change", "both sides are fixed: this never changes")
	case ro.Shape == datum.ListShape && ro.Elem == nil && r.fixed:
		b.reporter.Warnf(b.span(x), rules.ExprImpossibleIn, "", "nothing is in an empty list: this is always false")
	case ro.Shape == datum.ListShape && !lo.MayBe(ro.Elem):
		b.reporter.Warnf(b.span(x), rules.ExprImpossibleIn, nearWord(lo, ro.Elem),
			"%s is %s, and the list holds only %s: this is always false",
			b.Text(x.Left), lo, ro.Elem)
	case ro.Shape == datum.ListShape:
		b.checkInWords(x, l)
	case ro.Shape == datum.MapShape:
		b.checkInMap(x, ro)
	}
}

// checkInWords warns of elements of a fixed list that can never match.
func (b *checks) checkInWords(x *ast.BinaryNode, l part) {
	list, ok := x.Right.(*ast.ArrayNode)
	o := l.outline
	if !ok || o == nil || o.Words == nil {
		return
	}
	for _, n := range list.Nodes {
		w, ok := scalarNode(n)
		if !ok || typing.ContainsWord(o.Words, w) {
			continue
		}
		b.reporter.Warnf(b.span(n), rules.ExprImpossibleIn, nearWord(o, typing.Of(w)), "%s is %s, never %s", b.Text(x.Left), o,
			datum.DescribeData(w))
	}
}

// checkInMap handles 'key' in x.
func (b *checks) checkInMap(x *ast.BinaryNode, r *typing.Outline) {
	key, ok := b.Literal(x.Left)
	if !ok {
		return
	}
	m := r.Members[key]
	switch {
	case m == nil && r.Closed:
		hint := "it has " + strings.Join(r.MemberNames(), ", ")
		hint = cmp.Or(diag.DidYouMean(key, r.MemberNames(), "'"), hint)
		b.reporter.Warnf(b.span(x), rules.ExprImpossibleIn, hint, "the schema of %s has no key %s", b.Text(x.Right), key)
	case m != nil && m.Required && !r.Inferred:
		b.reporter.Warnf(b.span(x), rules.ExprConstant, "drop the test", "%s always has the key %s", b.Text(x.Right), key)
	}
}

// placed checks the whole expression against the kind that its place requires.
func (b *checks) placed(root part, want datum.Kind) part {
	if want == datum.BoolKind {
		root = b.solid(b.Root, root) // elsewhere, null means nothing
	}
	fits := datum.ShapeOf(want)
	for _, o := range root.outline.Each() {
		if o != nil && o.Shape&^datum.NullShape != 0 && o.Shape&fits == 0 {
			b.doubt(b.Root, o, rules.ExprUnfit, "", "want %s here, %s %s", fits, root.have(), o.Shape)
			break
		}
	}
	return root
}

// want reports a part that can never have the required type.
func (b *checks) want(n ast.Node, p part, s datum.Shape, what string) part {
	if s&datum.NullShape == 0 {
		p = b.solid(n, p)
	}
	hint := hintFor(s, p.shape)
	if what == "or" {
		hint += ", or write a ?? b for a default" // other languages use or for it
	}
	if p.shape&s == 0 {
		return b.fail(n, rules.ExprOperand, hint, "%s needs %s, have %s", what, s, p.shape)
	}
	for _, o := range p.outline.Each() {
		if o != nil && o.Shape&s == 0 {
			b.doubt(n, o, rules.ExprOperand, hintFor(s, o.Shape), "%s needs %s, %s %s", what, s, p.have(), o.Shape)
			break
		}
	}
	return p
}

// hintFor returns how to convert one type to another.
func hintFor(want, have datum.Shape) string {
	switch {
	case want == datum.BoolShape && have&^datum.NullShape == 0:
		return "write true or false"
	case want == datum.BoolShape && have&datum.NumberShape != 0:
		return "compare it: x != 0"
	case want == datum.BoolShape && have&datum.StringShape != 0:
		return "compare it: x != ''"
	case want == datum.BoolShape:
		return "compare it: len(x) > 0"
	case want&datum.StringShape != 0 && have&datum.NumberShape != 0:
		return "make a string of it: string(x)"
	case want&datum.NumberShape != 0 && have&datum.StringShape != 0:
		return "make a number of it: int(x) or float(x)"
	}
	return ""
}

// checkLoop warns of a body that does not depend on the element.
func (b *checks) checkLoop(x *ast.BuiltinNode, body ast.Node) {
	first, last := b.Outer(body)
	if _, isMap := body.(*ast.MapNode); !isMap && first > 0 && b.Tokens[first-1].Is("{") && b.Tokens[first-1].Pair == last+1 {
		b.reporter.Warnf(b.span(body), rules.ExprLoopBody, "write {name: …} for a mapping, or drop the braces",
			"the braces only stand around the body of %s: they make no mapping", x.Name)
		return
	}
	if touchesItem(body) {
		return
	}
	hint := "write # for the element, such as #.name"
	if id, ok := body.(*ast.IdentifierNode); ok {
		hint = "write #." + b.Name(id) + " for the member of the element"
	}
	b.reporter.Warnf(b.span(body), rules.ExprLoopBody, hint, "the body of %s does not look at the element: it is the same for each", x.Name)
}

// touchesItem reports whether an expression reads the element of the innermost loop.
func touchesItem(n ast.Node) bool {
	finder := &itemFinder{}
	ast.Walk(&n, finder)
	return finder.found
}

// An itemFinder looks for #, #index and #acc. It includes inner loops, which have their own check.
type itemFinder struct{ found bool }

// Visit implements [ast.Visitor].
func (f *itemFinder) Visit(n *ast.Node) {
	if _, ok := (*n).(*ast.PointerNode); ok {
		f.found = true
	}
}
