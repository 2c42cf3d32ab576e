package dsl

import (
	"fmt"
	"slices"
	"strconv"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// This file holds values that are sent or kept against the schema of their place.
// Expressions in them have been compiled.

// fits reports where a value does not fit a contract. What of it is fixed is held
// against the schema itself, the rest against what is known of it.
func (c *pipelineCheck) fits(v *Value, contract *Contract, what string) {
	if contract == nil || v == nil || c.blamed(v.Span) {
		return
	}
	// The schema says more than an outline holds: patterns, bounds, conditions.
	if data, ok := v.Literal(); ok {
		reportFaults(contract, v, data, head(v), c.Reporter)
		return
	}
	c.fitsOutline(v, contract.outline, portion{what: what})
}

// A portion is where in a value that is sent or kept something stands.
type portion struct {
	what string // the whole, for people
	path Path
}

// member is the part of that name.
func (p portion) member(name string) portion {
	return portion{p.what, append(slices.Clip(p.path), name)}
}

// String names the part: the payload of done: customer.id.
func (p portion) String() string {
	if len(p.path) == 0 {
		return p.what
	}
	return p.what + ": " + p.path.String()
}

// fitsOutline reports where a value contradicts an outline.
func (c *pipelineCheck) fitsOutline(v *Value, want *outline, at portion) {
	if want == nil {
		return
	}
	switch v.kind {
	case valueExpr:
		c.fitsKnown(v, v.expr.result, want, at)
	case valueSecret:
		if want.shape&stringShape == 0 {
			c.misfit(v, want, "%s: want %s, have a secret", at, want)
		}
	case valueLiteral:
		have := outlineOf(v.literal)
		if !want.mayBe(have) || have.shape == nullShape && want.shape&nullShape == 0 {
			c.misfit(v, want, "%s: want %s, have %s", at, want, describeData(v.literal))
		}
	case valueList:
		if want.shape&listShape == 0 {
			c.misfit(v, want, "%s: want %s, have a list", at, want)
			return
		}
		for i, item := range v.items {
			c.fitsOutline(item, want.elem, at.member(strconv.Itoa(i)))
		}
	case valueMap:
		c.fitsMembers(v, want, at)
	}
}

// fitsMembers reports members that the outline of a mapping does not know, that contradict it,
// and that it misses.
func (c *pipelineCheck) fitsMembers(v *Value, want *outline, at portion) {
	if want.shape&mapShape == 0 {
		c.misfit(v, want, "%s: want %s, have a mapping", at, want)
		return
	}
	for i, k := range v.keys {
		m := want.members[k.Name]
		switch {
		case m != nil:
			c.fitsOutline(v.items[i], m.outline, at.member(k.Name))
		case !want.closed:
			c.fitsOutline(v.items[i], want.rest, at.member(k.Name))
		default:
			c.Report(diag.Diagnostic{
				Span: k.Span, Code: rules.ExprUnknownField, Hint: c.DidYouMean(k.Name, want.memberNames),
				Message: fmt.Sprintf("%s has no member %s", at, k.Name), Related: schemaOf(want),
			})
		}
	}
	for _, name := range want.memberNames() {
		if _, ok := hasKey(v.keys, name); !ok && want.members[name].required {
			c.Report(diag.Diagnostic{
				Span: head(v), Code: rules.MissingPart, Hint: "add " + name + ":",
				Message: fmt.Sprintf("%s is missing", at.member(name)), Related: schemaOf(want),
			})
		}
	}
}

// misfit reports a value that cannot stand at its place.
func (c *pipelineCheck) misfit(v *Value, want *outline, format string, args ...any) {
	c.Report(diag.Diagnostic{Span: head(v), Code: rules.Misfit, Message: fmt.Sprintf(format, args...), Related: schemaOf(want)})
}

// schemaOf is the place of the schema that an outline is of; none for one that was inferred.
func schemaOf(o *outline) []diag.Related {
	if o == nil || o.at == (diag.Span{}) {
		return nil
	}
	return []diag.Related{{Span: o.at, Message: "its schema"}}
}

// fitsKnown holds what is known of an expression against an outline.
func (c *pipelineCheck) fitsKnown(v *Value, have, want *outline, at portion) {
	// What is beyond a thousand comparisons is taken to fit.
	problem := (&comparison{left: 1000}).contradiction(have, want, nil)
	if problem == nil {
		return
	}
	d := diag.Diagnostic{Span: v.Span, Code: rules.Misfit, Related: schemaOf(want)}
	name := portion{at.what, slices.Concat(at.path, problem.path)}
	switch problem.kind {
	case maybeNull:
		d.Code = rules.ExprMaybeNull
		d.Message = fmt.Sprintf("%s may be null here, and must not be", name)
		if problem.have.why != "" {
			d.Message += ": " + problem.have.why
		}
		d.Hint = "give a default with ??, or test it in enabled"
	case lacks:
		d.Code = rules.MissingPart
		d.Message = fmt.Sprintf("%s is missing", name)
	default:
		d.Message = fmt.Sprintf("%s: want %s, have %s", name, problem.want, problem.have)
	}
	c.Report(d)
}

// A conflict is the first way in which what is known of a value contradicts what
// is wanted.
type conflict struct {
	kind       conflictKind
	path       Path
	have, want *outline
}

// A conflictKind tells in which way a value does not fit, which decides its code and hint.
type conflictKind int

const (
	wrongType conflictKind = iota // no value that it may have is one that is wanted
	maybeNull                     // it may be null where null is not wanted
	lacks                         // a mapping never has a member that is required
)

// A comparison bounds how much is compared: a schema may hold itself.
type comparison struct{ left int }

// contradiction compares what is known with what is wanted; nil when nothing is
// sure to be wrong.
func (c *comparison) contradiction(have, want *outline, path Path) *conflict {
	if c.left--; have == nil || want == nil || have == want || c.left < 0 {
		return nil
	}
	// A null without a reason is one that the proof of degradation looks at.
	if have.shape&nullShape != 0 && want.shape&nullShape == 0 && (have.why != "" || have.shape == nullShape) {
		return &conflict{maybeNull, path, have, want}
	}
	if !want.mayBe(have) && !want.mayBe(have.present()) {
		return &conflict{wrongType, path, have, want}
	}
	if have.shape&^nullShape == listShape && want.shape&listShape != 0 {
		return c.contradiction(have.elem, want.elem, append(slices.Clip(path), "[]"))
	}
	if have.shape&^nullShape != mapShape || want.shape&mapShape == 0 {
		return nil
	}
	for _, name := range want.memberNames() {
		m, w := have.members[name], want.members[name]
		at := append(slices.Clip(path), name)
		switch {
		case m == nil && have.closed && w.required:
			return &conflict{lacks, at, have, w.outline}
		case m == nil:
		case !m.required && w.required && !have.inferred:
			return &conflict{maybeNull, at, m.lacked("its schema does not require it").orAny(), w.outline}
		default:
			if found := c.contradiction(m.outline, w.outline, at); found != nil {
				return found
			}
		}
	}
	return nil
}

// orAny gives an outline to talk about even when nothing is known.
func (o *outline) orAny() *outline {
	if o == nil {
		return &outline{shape: anyShape, why: "its schema does not require it"}
	}
	return o
}
