package typing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/ops"
)

// An Outline is what is known of a value before it is there: the types that it
// may have, and what is known of its parts. A nil outline knows nothing, and
// nothing is checked against it. Outlines are never changed: many places share
// one, and one may hold itself.
type Outline struct {
	Shape datum.Shape

	// Members are the known members of a mapping. When closed is true it has no
	// others; otherwise others are as rest says.
	Members map[string]*Member
	Closed  bool
	Rest    *Outline

	Elem  *Outline // of a list
	Words []any    // the only values there are besides null; nil for any

	// Why says how it comes to be null, when its shape has null among others:
	// "it is optional in …". Empty when nobody needs to be told, because the proof
	// of degradation looks at it.
	Why string

	// Optional says that it is null because a mapping may lack it, and not
	// otherwise.
	Optional bool

	// Inferred is true when no schema says it, only the values that expressions
	// give. What contradicts it is a warning.
	Inferred bool

	At diag.Span // where a schema says it; zero for none

	// About is what a schema says of it to people: its title or its description. Empty for nothing.
	About string
}

// A Member is what is known of one member of a mapping.
type Member struct {
	*Outline
	Required bool
}

// Types are those that a value may have.
func (o *Outline) Types() datum.Shape {
	if o == nil {
		return datum.AnyShape
	}
	return o.Shape
}

// Nullable reports whether it is known that a value may be null, and that it need
// not be.
func (o *Outline) Nullable() bool {
	return o != nil && o.Shape&datum.NullShape != 0 && o.Shape != datum.NullShape && o.Shape != datum.AnyShape
}

// Present is the outline of a value that is not null.
func (o *Outline) Present() *Outline {
	if !o.Nullable() {
		return o
	}
	out := *o
	out.Shape &^= datum.NullShape
	out.Optional, out.Why = false, ""
	return &out
}

// Absent is the outline of a value that may also be null, for a reason.
func (o *Outline) Absent(why string) *Outline {
	if o == nil || o.Shape&datum.NullShape != 0 {
		return o
	}
	out := *o
	out.Shape |= datum.NullShape
	out.Why = why
	return &out
}

// Lacked is the outline of a value that is null where a mapping lacks it.
func (o *Outline) Lacked(why string) *Outline {
	if o == nil || o.Shape&datum.NullShape != 0 {
		return o
	}
	out := o.Absent(why)
	out.Optional = true
	return out
}

// Unsure is the outline of a value that begins as this one and may become any: only
// that it may be null is still known.
func (o *Outline) Unsure() *Outline {
	if !o.Nullable() {
		return nil
	}
	return &Outline{Shape: datum.AnyShape &^ datum.SecretShape, Why: o.Why, Inferred: o.Inferred, At: o.At}
}

// Supposed is the outline as something that no schema promises.
func (o *Outline) Supposed() *Outline {
	if o == nil || o.Inferred {
		return o
	}
	out := *o
	out.Inferred = true
	return &out
}

// OfShape is the outline of a value of which only types are known; nil for any.
func OfShape(s datum.Shape) *Outline {
	if s == datum.AnyShape || s == 0 {
		return nil
	}
	return &Outline{Shape: s}
}

// Of returns the outline of data, which no schema promises. Its mappings have
// these members and no others.
func Of(v any) *Outline {
	switch v := v.(type) {
	case []any:
		out := &Outline{Shape: datum.ListShape, Inferred: true}
		for i, x := range v {
			if i == 0 {
				out.Elem = Of(x)
				continue
			}
			out.Elem = Either(out.Elem, Of(x))
		}
		return out
	case map[string]any:
		out := &Outline{Shape: datum.MapShape, Closed: true, Inferred: true, Members: make(map[string]*Member, len(v))}
		for k, x := range v {
			out.Members[k] = &Member{Of(x), true}
		}
		return out
	}
	out := &Outline{Shape: datum.ShapeOfValue(v), Inferred: true}
	if v != nil {
		out.Words = []any{v}
	}
	return out
}

// Widened forgets which values there are and keeps their types: what a variable
// begins with does not bound what it may become.
func (o *Outline) Widened() *Outline {
	if o == nil || o.Words == nil {
		return o
	}
	out := *o
	out.Words = nil
	if out.Shape&datum.NumberShape != 0 {
		out.Shape |= datum.NumberShape
	}
	return &out
}

// Either is the outline of a value that is as one of two say.
func Either(a, b *Outline) *Outline { return (&joiner{left: 1000}).join(a, b) }

// A joiner joins outlines down to their parts, as long as there is something left
// of its budget; of the rest nothing is known. A schema may hold itself.
type joiner struct{ left int }

func (j *joiner) join(a, b *Outline) *Outline {
	j.left--
	switch {
	case a == nil || b == nil || j.left < 0:
		return nil
	case a == b:
		return a
	case a.Shape == datum.NullShape:
		return b.orNull(a)
	case b.Shape == datum.NullShape:
		return a.orNull(b)
	}
	out := &Outline{Shape: a.Shape | b.Shape, Inferred: a.Inferred || b.Inferred, At: a.At}
	if out.Shape == datum.AnyShape {
		return nil
	}
	out.Why = a.Why
	if out.Why == "" {
		out.Why = b.Why
	}
	if a.Words != nil && b.Words != nil {
		out.Words = UnionWords(a.Words, b.Words)
	}
	switch aMap, bMap := a.Shape&datum.MapShape != 0, b.Shape&datum.MapShape != 0; {
	case aMap && bMap:
		j.members(out, a, b)
	case aMap:
		out.Members, out.Closed, out.Rest = a.Members, a.Closed, a.Rest
	case bMap:
		out.Members, out.Closed, out.Rest = b.Members, b.Closed, b.Rest
	}
	switch aList, bList := a.Shape&datum.ListShape != 0, b.Shape&datum.ListShape != 0; {
	case aList && bList:
		out.Elem = j.join(a.Elem, b.Elem)
	case aList:
		out.Elem = a.Elem
	case bList:
		out.Elem = b.Elem
	}
	return out
}

// orNull is the outline of a value that may also be the null that null tells of.
func (o *Outline) orNull(null *Outline) *Outline {
	out := *o
	out.Shape |= datum.NullShape
	out.Optional = false
	out.Inferred = o.Inferred || null.Inferred
	if out.Why == "" {
		out.Why = null.Why
	}
	return &out
}

// members gives out the members of either of two mappings.
func (j *joiner) members(out, a, b *Outline) {
	out.Closed = a.Closed && b.Closed
	if !out.Closed {
		out.Rest = j.join(a.other(), b.other())
	}
	out.Members = make(map[string]*Member, len(a.Members))
	for _, name := range a.MemberNames() { // in order, or the budget would make it chance
		m := a.Members[name]
		if n := b.Members[name]; n != nil {
			out.Members[name] = &Member{j.join(m.Outline, n.Outline), m.Required && n.Required}
		} else {
			out.Members[name] = j.lacking(b, m)
		}
	}
	for _, name := range b.MemberNames() {
		if out.Members[name] == nil {
			out.Members[name] = j.lacking(a, b.Members[name])
		}
	}
}

// lacking is what a member is that only the other one of two mappings names.
func (j *joiner) lacking(o *Outline, m *Member) *Member {
	if o.Closed {
		return &Member{m.Outline, false}
	}
	return &Member{j.join(m.Outline, o.Rest), false}
}

// other is what the members are that have no name here.
func (o *Outline) other() *Outline {
	if o.Closed {
		return &Outline{Shape: datum.NullShape, Inferred: o.Inferred}
	}
	return o.Rest
}

// maxWords bounds the values that an outline lists.
const maxWords = 100

// UnionWords returns the values of both lists, each once; nil when they are too many.
func UnionWords(a, b []any) []any {
	out := slices.Clone(a)
	for _, w := range b {
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	if len(out) > maxWords {
		return nil
	}
	return out
}

// MemberNames lists the known members in order.
func (o *Outline) MemberNames() []string { return slices.Sorted(maps.Keys(o.Members)) }

// String says what the value may be, for people: its values when they are few,
// else its types.
func (o *Outline) String() string {
	if o == nil {
		return "any value"
	}
	const few = 6
	if len(o.Words) == 0 || len(o.Words) > few {
		return o.Shape.String()
	}
	if o.Shape&datum.NullShape != 0 {
		return datum.OneOf(append(slices.Clip(o.Words), nil))
	}
	return datum.OneOf(o.Words)
}

// MayBe reports whether a value of the outline may equal one of another.
func (o *Outline) MayBe(other *Outline) bool {
	if o == nil || other == nil {
		return true
	}
	if o.Shape&other.Shape&^(datum.BoolShape|datum.NumberShape|datum.StringShape) != 0 {
		return true // two nulls, or lists and mappings, into which we do not look
	}
	if !ops.MayEqual(o.Shape, other.Shape) {
		return false
	}
	if o.Words == nil || other.Words == nil {
		return true
	}
	return slices.ContainsFunc(o.Words, func(w any) bool { return ContainsWord(other.Words, w) })
}

// ContainsWord reports whether a value is among others; 1 and 1.0 are the same.
func ContainsWord(words []any, w any) bool {
	return slices.ContainsFunc(words, func(x any) bool {
		same, err := ops.Equal(&ops.Meter{}, x, w)
		return err == nil && same
	})
}

// TextWords lists the strings among the words, for suggestions.
func (o *Outline) TextWords() []string {
	var out []string
	for _, w := range o.Words {
		if s, ok := w.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// Dump writes an outline in full, for tests and for people who ask.
func (o *Outline) Dump(depth int) string {
	if o == nil {
		return "any"
	}
	if depth == 0 {
		return "…"
	}
	var parts []string
	if scalar := o.Shape &^ (datum.MapShape | datum.ListShape | datum.NullShape); scalar != 0 {
		parts = append(parts, (&Outline{Shape: scalar, Words: o.Words}).String())
	}
	if o.Shape&datum.ListShape != 0 {
		parts = append(parts, "["+o.Elem.Dump(depth-1)+"]")
	}
	if o.Shape&datum.MapShape != 0 {
		var fields []string
		for _, name := range o.MemberNames() {
			m, mark := o.Members[name], "?"
			if m.Required {
				mark = ""
			}
			fields = append(fields, fmt.Sprintf("%s%s: %s", name, mark, m.Dump(depth-1)))
		}
		if !o.Closed {
			fields = append(fields, "…: "+o.Rest.Dump(depth-1))
		}
		parts = append(parts, "{"+strings.Join(fields, ", ")+"}")
	}
	if o.Shape&datum.NullShape != 0 {
		parts = append(parts, "null")
	}
	return strings.Join(parts, " | ")
}

// OrAny returns an outline to talk about even when nothing is known.
func (o *Outline) OrAny() *Outline {
	if o == nil {
		return &Outline{Shape: datum.AnyShape, Why: "its schema does not require it"}
	}
	return o
}

// Told forgets of a value that it is null when that is the business of the proof
// of degradation: it has not been set yet.
func (o *Outline) Told() *Outline {
	if o != nil && o.Shape == datum.NullShape && o.Why == "" {
		return nil
	}
	return o
}
