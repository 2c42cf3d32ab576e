package check

import (
	"fmt"
	"slices"
	"strconv"

	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/typing"
)

// This file checks values that are sent or stored against the schema of their place. Their expressions are
// compiled.

// fits reports where a value does not fit a contract. It checks constant parts against the schema itself, and
// the rest against inferred types.
func fits(w *merge.Whole, v *expr.Value, contract *contracts.Contract, what string, r *diag.Reporter) {
	if contract == nil || v == nil || w.Blamed(v.Span) {
		return
	}
	// The schema says more than an outline: patterns, limits, conditions.
	if data, ok := v.Literal(); ok {
		contract.Report(v, data, v.Head(), r)
		return
	}
	fitsOutline(v, contract.Outline(), portion{what: what}, r)
}

// A portion is the place of a part within a value that is sent or stored.
type portion struct {
	what string // name of the whole value, for messages
	path datum.Path
}

// member returns the place of a member.
func (p portion) member(name string) portion {
	return portion{p.what, append(slices.Clip(p.path), name)}
}

// String returns text such as "the payload of done: customer.id".
func (p portion) String() string {
	if len(p.path) == 0 {
		return p.what
	}
	return p.what + ": " + p.path.String()
}

// fitsOutline reports where a value contradicts an outline.
func fitsOutline(v *expr.Value, want *typing.Outline, at portion, r *diag.Reporter) {
	if want == nil {
		return
	}
	switch v.Kind {
	case expr.ValueExpr:
		fitsKnown(v, v.Computed.Result, want, at, r)
	case expr.ValueSecret:
		if want.Shape&datum.StringShape == 0 {
			misfit(v, want, fmt.Sprintf("%s: want %s, have a secret", at, want), r)
		}
	case expr.ValueLiteral:
		have := typing.Of(v.Scalar)
		if !want.MayBe(have) || have.Shape == datum.NullShape && want.Shape&datum.NullShape == 0 {
			misfit(v, want, fmt.Sprintf("%s: want %s, have %s", at, want, datum.DescribeData(v.Scalar)), r)
		}
	case expr.ValueList:
		if want.Shape&datum.ListShape == 0 {
			misfit(v, want, fmt.Sprintf("%s: want %s, have a list", at, want), r)
			return
		}
		for i, item := range v.Elems {
			fitsOutline(item, want.Elem, at.member(strconv.Itoa(i)), r)
		}
	case expr.ValueMap:
		fitsMembers(v, want, at, r)
	}
}

// fitsMembers reports members that the outline of a mapping lacks, that contradict it, or that are missing.
func fitsMembers(v *expr.Value, want *typing.Outline, at portion, r *diag.Reporter) {
	if want.Shape&datum.MapShape == 0 {
		misfit(v, want, fmt.Sprintf("%s: want %s, have a mapping", at, want), r)
		return
	}
	for i, k := range v.Names {
		m := want.Members[k.Name]
		switch {
		case m != nil:
			fitsOutline(v.Elems[i], m.Outline, at.member(k.Name), r)
		case !want.Closed:
			fitsOutline(v.Elems[i], want.Rest, at.member(k.Name), r)
		default:
			r.Report(diag.Diagnostic{
				Span: k.Span, Code: rules.ExprUnknownField, Hint: r.DidYouMean(k.Name, want.MemberNames),
				Message: fmt.Sprintf("%s has no member %s", at, k.Name), Related: schemaOf(want),
			})
		}
	}
	for _, name := range want.MemberNames() {
		if v.Get(name) == nil && want.Members[name].Required {
			r.Report(diag.Diagnostic{
				Span: v.Head(), Code: rules.MissingPart, Hint: "add " + name + ":",
				Message: fmt.Sprintf("%s is missing", at.member(name)), Related: schemaOf(want),
			})
		}
	}
}

// misfit reports a value that does not fit its place.
func misfit(v *expr.Value, want *typing.Outline, message string, r *diag.Reporter) {
	r.Report(diag.Diagnostic{Span: v.Head(), Code: rules.Misfit, Message: message, Related: schemaOf(want)})
}

// schemaOf returns the place of the schema of an outline, or nothing if the outline was inferred.
func schemaOf(o *typing.Outline) []diag.Related {
	if o == nil || o.At == (diag.Span{}) {
		return nil
	}
	return []diag.Related{{Span: o.At, Message: "its schema"}}
}

// fitsKnown compares the inferred type of an expression with an outline.
func fitsKnown(v *expr.Value, have, want *typing.Outline, at portion, r *diag.Reporter) {
	// After a thousand comparisons, the rest counts as fitting.
	problem := (&comparison{left: 1000}).contradiction(have, want, nil)
	if problem == nil {
		return
	}
	d := diag.Diagnostic{Span: v.Span, Code: rules.Misfit, Related: schemaOf(want), Runs: true}
	name := portion{at.what, slices.Concat(at.path, problem.path)}
	switch problem.kind {
	case maybeNull:
		d.Code = rules.ExprMaybeNull
		d.Message = fmt.Sprintf("%s may be null here, and must not be", name)
		if problem.have.Why != "" {
			d.Message += ": " + problem.have.Why
		}
		d.Hint = "test it in enabled"
		if len(problem.path) == 0 && v.Expr() != nil {
			d.Hint = "write, for example, " + v.Expr().WithDefault(v.Span, want.Shape) + ", or " + d.Hint
		}
	case lacks:
		d.Code = rules.MissingPart
		d.Message = fmt.Sprintf("%s is missing", name)
	default:
		d.Message = fmt.Sprintf("%s: want %s, have %s", name, problem.want, problem.have)
	}
	r.Report(d)
}

// A conflict is the first contradiction between what is known of a value and what is wanted.
type conflict struct {
	kind       conflictKind
	path       datum.Path
	have, want *typing.Outline
}

// A conflictKind says how a value does not fit. It decides the code and the hint.
type conflictKind int

const (
	wrongType conflictKind = iota // no possible value fits
	maybeNull                     // it may be null where null is not allowed
	lacks                         // a mapping never has a required member
)

// A comparison limits how much is compared, since a schema may contain itself.
type comparison struct{ left int }

// contradiction compares what is known with what is wanted. It returns nil unless something is certainly wrong.
func (c *comparison) contradiction(have, want *typing.Outline, path datum.Path) *conflict {
	c.left--
	if have == nil || want == nil || have == want || c.left < 0 {
		return nil
	}
	if choices := have.Each(); len(choices) > 1 {
		for _, choice := range choices {
			if found := c.contradiction(choice, want, path); found != nil {
				return found
			}
		}
	}
	// The proof of degradation reports a null without a reason.
	if have.Shape&datum.NullShape != 0 && want.Shape&datum.NullShape == 0 && (have.Why != "" || have.Shape == datum.NullShape) {
		return &conflict{maybeNull, path, have, want}
	}
	if !want.MayBe(have) && !want.MayBe(have.Present()) {
		return &conflict{wrongType, path, have, want}
	}
	if have.Shape&^datum.NullShape == datum.ListShape && want.Shape&datum.ListShape != 0 {
		return c.contradiction(have.Elem, want.Elem, append(slices.Clip(path), "[]"))
	}
	if have.Shape&^datum.NullShape != datum.MapShape || want.Shape&datum.MapShape == 0 {
		return nil
	}
	for _, name := range want.MemberNames() {
		m, w := have.Members[name], want.Members[name]
		at := append(slices.Clip(path), name)
		switch {
		case m == nil && have.Closed && w.Required:
			return &conflict{lacks, at, have, w.Outline}
		case m == nil:
		case !m.Required && w.Required && !have.Inferred:
			return &conflict{maybeNull, at, m.Lacked("its schema does not require it").OrAny(), w.Outline}
		default:
			if found := c.contradiction(m.Outline, w.Outline, at); found != nil {
				return found
			}
		}
	}
	return nil
}
