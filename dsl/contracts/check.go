package contracts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"procaas/dsl/datum"
	"procaas/dsl/ops"
)

// This file checks data against compiled schemas, with limits. The library has none: if a schema refers to
// itself in two alternatives, its work doubles with each level of the data.

// The limits of one check. A step checks a value, a name or 64 bytes of text against a schema. Larger data gets
// more steps, so a short text is never expensive.
const (
	checkSteps     = 100_000   // for any data
	checkStepsEach = 100       // more for each scalar, list and mapping of the data
	maxCheckSteps  = 5_000_000 // upper limit
	maxCheckLevels = 2_000     // nested schemas, over all levels of the data
	maxCollected   = 1_000     // faults from which the first ones are selected
)

var errCheckSteps = errors.New("it takes too many steps to check this against its schema, more than its size allows: " +
	"make it smaller, or let the alternatives of the schema (anyOf, oneOf) and its patterns leave less to try")

// misfit is the result if only the existence of a fault matters.
var misfit = []Fault{{}}

// A fitting is one check of data against a schema.
type fitting struct {
	ctx    context.Context
	data   any        // the whole data
	left   int        // remaining steps
	raised bool       // whether the steps for the size of the data are added
	since  int        // steps since the last look at the context
	tell   bool       // whether to describe faults, or only find whether there is one
	path   datum.Path // of the current value
	level  int        // nested schemas around the current one
	err    error
}

// Check checks data against the contract. The error is a [*Error], also if the check exceeds the steps for the
// size of the data.
func (c *Contract) Check(data any) error { return c.CheckContext(context.Background(), data) }

// CheckContext is Check with a context. Once ctx has ended, it returns the error of ctx.
func (c *Contract) CheckContext(ctx context.Context, data any) error {
	if c == nil {
		return nil
	}
	j := &fitting{ctx: ctx, data: data, left: checkSteps}
	if len(j.visit(c.schema, data, nil)) == 0 && j.err == nil {
		return nil
	}
	e := &Error{Name: c.Name}
	if j.err == nil {
		j = &fitting{ctx: ctx, data: data, left: checkSteps, tell: true}
		e.Faults = j.visit(c.schema, data, nil)
	}
	switch {
	case j.err == nil:
	case !errors.Is(j.err, errCheckSteps):
		return fmt.Errorf("%s: %w", c.Name, j.err)
	default:
		e.Faults = []Fault{{Message: j.err.Error()}}
	}
	e.sort()
	return e
}

// step consumes n steps. It returns false if none are left.
func (j *fitting) step(n int) bool {
	if j.err != nil {
		return false
	}
	j.left -= n
	if j.left < 0 && !j.raised {
		j.raised = true
		j.left += min(maxCheckSteps-checkSteps, checkStepsEach*sizeOf(j.data))
	}
	if j.left < 0 {
		j.err = errCheckSteps
		return false
	}
	j.since += n
	if j.since > 10_000 {
		j.since = 0
		j.err = j.ctx.Err()
	}
	return j.err == nil
}

// sizeOf counts the scalars, lists and mappings of data.
func sizeOf(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			n += sizeOf(x)
		}
	case map[string]any:
		for _, x := range v {
			n += sizeOf(x)
		}
	case string:
		n += len(v) / 64
	}
	return n
}

// enough reports whether the search for faults can stop.
func (j *fitting) enough(found []Fault) bool {
	return j.err != nil || len(found) > 0 && !j.tell || len(found) >= maxCollected
}

// fault describes what is wrong with a value.
func (j *fitting) fault(k jsonschema.ErrorKind, v any) []Fault {
	if !j.tell {
		return misfit
	}
	return faultOf(k, slices.Clone(j.path), v)
}

// quietly reports whether a value fits, without describing faults.
func (j *fitting) quietly(s *jsonschema.Schema, v any, done *evaluated) bool {
	told := j.tell
	j.tell = false
	found := j.visit(s, v, done)
	j.tell = told
	return len(found) == 0
}

// below checks a part of the value against a schema.
func (j *fitting) below(s *jsonschema.Schema, name string, v any) []Fault {
	j.path = append(j.path, name)
	found := j.visit(s, v, nil)
	j.path = j.path[:len(j.path)-1]
	return found
}

// visit checks a value against a schema. It records in done which parts the schema evaluated, unless done is
// nil.
func (j *fitting) visit(s *jsonschema.Schema, v any, done *evaluated) []Fault {
	if j.level == maxCheckLevels {
		j.err = errCheckSteps
	}
	if !j.step(1) {
		return misfit
	}
	if s.Bool != nil {
		if *s.Bool {
			return nil
		}
		return j.fault(&kind.FalseSchema{}, v)
	}
	j.level++
	defer func() { j.level-- }()
	if done == nil && (s.UnevaluatedProperties != nil || s.UnevaluatedItems != nil) {
		done = newEvaluated()
	}
	out := j.whole(s, v)
	if len(out) > 0 {
		return out
	}
	if s.Ref != nil && s.DraftVersion < 2019 {
		return j.visit(s.Ref, v, done) // older drafts ignore keywords beside $ref
	}
	for _, part := range []func(*fitting, *jsonschema.Schema, any, *evaluated) []Fault{
		(*fitting).refs, (*fitting).typed, (*fitting).all, (*fitting).either, (*fitting).one, (*fitting).conditions, (*fitting).rest,
	} {
		out = append(out, part(j, s, v, done)...)
		if j.enough(out) {
			return out
		}
	}
	return out
}

// whole checks type, const, enum and format.
func (j *fitting) whole(s *jsonschema.Schema, v any) []Fault {
	if s.Types != nil && !s.Types.IsEmpty() && *s.Types&typesOfData(v) == 0 {
		return j.fault(&kind.Type{Want: s.Types.ToStrings()}, v)
	}
	if s.Const != nil && !j.same(v, *s.Const) {
		return j.fault(&kind.Const{Got: v, Want: *s.Const}, v)
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum.Values, func(x any) bool { return j.same(v, x) }) {
		return j.fault(&kind.Enum{Got: v, Want: s.Enum.Values}, v)
	}
	if s.Format != nil {
		if text, ok := v.(string); ok && !j.step(len(text)) {
			return misfit
		}
		if err := s.Format.Validate(v); err != nil {
			return j.fault(&kind.Format{Got: v, Want: s.Format.Name, Err: err}, v)
		}
	}
	return nil
}

// typesOfData returns the JSON Schema types of a value. 5.0 is an integer there.
func typesOfData(v any) (out jsonschema.Types) {
	switch v := v.(type) {
	case nil:
		out.Add("null")
	case bool:
		out.Add("boolean")
	case int:
		out.Add("number")
		out.Add("integer")
	case float64:
		if out.Add("number"); v == math.Trunc(v) {
			out.Add("integer")
		}
	case string:
		out.Add("string")
	case []any:
		out.Add("array")
	case map[string]any:
		out.Add("object")
	}
	return out
}

// same reports whether two values are equal JSON.
func (j *fitting) same(a, b any) bool {
	var m ops.Meter
	same, err := ops.Equal(&m, a, b)
	return j.step(1+m.Steps) && err == nil && same
}

// refs follows references. Dynamic references have one possible target: see [Set.ends].
func (j *fitting) refs(s *jsonschema.Schema, v any, done *evaluated) (out []Fault) {
	for _, to := range referredTo(s) {
		out = append(out, j.self(to, v, done)...)
		if j.enough(out) {
			break
		}
	}
	return out
}

// referredTo lists the schemas to which one refers.
func referredTo(s *jsonschema.Schema) (out []*jsonschema.Schema) {
	if s.Ref != nil {
		out = append(out, s.Ref)
	}
	if s.RecursiveRef != nil {
		out = append(out, s.RecursiveRef)
	}
	if s.DynamicRef != nil {
		out = append(out, s.DynamicRef.Ref)
	}
	return out
}

// self checks the same value against another schema. Parts that it evaluated count if the value fits.
func (j *fitting) self(s *jsonschema.Schema, v any, done *evaluated) []Fault {
	more := done.another()
	found := j.visit(s, v, more)
	if len(found) == 0 {
		done.merge(more)
	}
	return found
}

func (j *fitting) typed(s *jsonschema.Schema, v any, done *evaluated) []Fault {
	switch v := v.(type) {
	case map[string]any:
		return j.mapping(s, v, done)
	case []any:
		return j.list(s, v, done)
	case string:
		return j.text(s, v)
	case int, float64:
		return j.number(s, v)
	}
	return nil
}

func (j *fitting) all(s *jsonschema.Schema, v any, done *evaluated) (out []Fault) {
	for _, one := range s.AllOf {
		out = append(out, j.self(one, v, done)...)
		if j.enough(out) {
			break
		}
	}
	return out
}

// either checks anyOf. If no alternative fits, the nearest one explains why.
func (j *fitting) either(s *jsonschema.Schema, v any, done *evaluated) []Fault {
	var nearest []Fault
	fits := len(s.AnyOf) == 0
	for _, one := range s.AnyOf {
		found := j.self(one, v, done)
		if len(found) == 0 {
			fits = true
			if done == nil { // otherwise all are needed for the evaluated parts
				break
			}
		} else if nearest == nil || nearness(found) > nearness(nearest) {
			nearest = found
		}
	}
	if fits {
		return nil
	}
	return nearest
}

// one checks oneOf.
func (j *fitting) one(s *jsonschema.Schema, v any, done *evaluated) []Fault {
	var nearest []Fault
	fits := 0
	for _, one := range s.OneOf {
		if fits > 0 {
			if more := done.another(); j.quietly(one, v, more) {
				return j.fault(&kind.OneOf{Subschemas: []int{0, 1}}, v)
			}
			continue
		}
		found := j.self(one, v, done)
		if len(found) == 0 {
			fits++
		} else if nearest == nil || nearness(found) > nearness(nearest) {
			nearest = found
		}
	}
	if fits > 0 {
		return nil
	}
	return nearest
}

// conditions checks not, and if with then and else.
func (j *fitting) conditions(s *jsonschema.Schema, v any, done *evaluated) (out []Fault) {
	if s.Not != nil && j.quietly(s.Not, v, nil) {
		out = j.fault(&kind.Not{}, v)
	}
	if s.If == nil || j.enough(out) {
		return out
	}
	next, more := s.Else, done.another()
	if j.quietly(s.If, v, more) {
		done.merge(more)
		next = s.Then
	}
	if next != nil {
		out = append(out, j.self(next, v, done)...)
	}
	return out
}

// rest checks the parts of a value that no keyword has evaluated.
func (j *fitting) rest(s *jsonschema.Schema, v any, done *evaluated) (out []Fault) {
	switch v := v.(type) {
	case map[string]any:
		if s.UnevaluatedProperties == nil {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if done.names[name] {
				continue
			}
			out = append(out, j.below(s.UnevaluatedProperties, name, v[name])...)
			if j.enough(out) {
				return out
			}
			done.names[name] = true
		}
	case []any:
		if s.UnevaluatedItems == nil {
			return nil
		}
		for i, x := range v {
			if done.items[i] {
				continue
			}
			out = append(out, j.below(s.UnevaluatedItems, strconv.Itoa(i), x)...)
			if j.enough(out) {
				return out
			}
			done.items[i] = true
		}
	}
	return out
}

func (j *fitting) text(s *jsonschema.Schema, text string) (out []Fault) {
	if s.MinLength != nil || s.MaxLength != nil {
		if !j.step(len(text) / 64) {
			return misfit
		}
		n := utf8.RuneCountInString(text)
		if s.MinLength != nil && n < *s.MinLength {
			out = append(out, j.fault(&kind.MinLength{Got: n, Want: *s.MinLength}, text)...)
		}
		if s.MaxLength != nil && n > *s.MaxLength {
			out = append(out, j.fault(&kind.MaxLength{Got: n, Want: *s.MaxLength}, text)...)
		}
	}
	if s.Pattern != nil && !j.matches(s.Pattern, text) {
		out = append(out, j.fault(&kind.Pattern{Got: text, Want: s.Pattern.String()}, text)...)
	}
	return out
}

// matches takes time in proportion to the text and to the pattern.
func (j *fitting) matches(re jsonschema.Regexp, text string) bool {
	size := ops.MaxInstructions
	if p, ok := re.(*schemaPattern); ok {
		size = p.size
	}
	return j.step(1+len(text)*size/16) && re.MatchString(text)
}

func (j *fitting) number(s *jsonschema.Schema, v any) (out []Fault) {
	if s.Minimum == nil && s.Maximum == nil && s.ExclusiveMinimum == nil && s.ExclusiveMaximum == nil && s.MultipleOf == nil {
		return nil
	}
	if !j.step(4) {
		return misfit
	}
	n, ok := new(big.Rat).SetString(fmt.Sprint(v)) // exactly as written: 0.1 is a tenth
	if !ok {
		return misfit // JSON has no such number
	}
	for _, bound := range []struct {
		limit *big.Rat
		bad   func(c int) bool
		kind  func(limit *big.Rat) jsonschema.ErrorKind
	}{
		{s.Minimum, func(c int) bool { return c < 0 }, func(b *big.Rat) jsonschema.ErrorKind { return &kind.Minimum{Got: n, Want: b} }},
		{s.Maximum, func(c int) bool { return c > 0 }, func(b *big.Rat) jsonschema.ErrorKind { return &kind.Maximum{Got: n, Want: b} }},
		{
			s.ExclusiveMinimum, func(c int) bool { return c <= 0 },
			func(b *big.Rat) jsonschema.ErrorKind { return &kind.ExclusiveMinimum{Got: n, Want: b} },
		},
		{
			s.ExclusiveMaximum, func(c int) bool { return c >= 0 },
			func(b *big.Rat) jsonschema.ErrorKind { return &kind.ExclusiveMaximum{Got: n, Want: b} },
		},
	} {
		if bound.limit != nil && bound.bad(n.Cmp(bound.limit)) {
			out = append(out, j.fault(bound.kind(bound.limit), v)...)
		}
	}
	if s.MultipleOf != nil && !new(big.Rat).Quo(n, s.MultipleOf).IsInt() {
		out = append(out, j.fault(&kind.MultipleOf{Got: n, Want: s.MultipleOf}, v)...)
	}
	return out
}
