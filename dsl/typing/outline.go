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

// An Outline is what is known of a value before it exists: its types and its parts. A nil outline knows
// nothing, and nothing is checked against it. Outlines are immutable and shared, and may be recursive.
type Outline struct {
	Shape datum.Shape

	// Inferred reports whether the outline comes from expressions instead of a schema. A contradiction is then
	// a warning.
	Inferred bool

	// Optional reports whether the value is null only because a mapping may lack it.
	Optional bool

	// Members are the known members of a mapping. If Closed is true, it has no others. Otherwise, Rest
	// describes the others.
	Closed  bool
	Members map[string]*Member
	Rest    *Outline

	Elem  *Outline // of a list
	Words []any    // the only possible values apart from null; nil for any

	// Choices are the values of which an expression returns one, such as both sides of ??. Each of them must fit
	// where the value is used. Of another union, one that fits is enough. A nil choice is any value.
	Choices []*Outline

	// Why is the reason why the value may be null, such as "it is optional in …". It is empty if the proof of
	// degradation reports the null.
	Why string

	// Unless names the member beside the value that is null only if the value is there, or is "". A test of that member
	// tells whether the value may be null for the reason Why.
	Unless string

	// Undescribed are the statuses, such as 404, of an element of a list that no schema describes, if it may have one.
	Undescribed []string

	At diag.Span // position in a schema; zero if there is none

	// About is the title or description in the schema, or "".
	About string
}

// A Member is one member of a mapping.
type Member struct {
	*Outline
	Required bool
}

// Types returns the types that the value may have.
func (o *Outline) Types() datum.Shape {
	if o == nil {
		return datum.AnyShape
	}
	return o.Shape
}

// Nullable reports whether the value may be null, but need not be.
func (o *Outline) Nullable() bool {
	return o != nil && o.Shape&datum.NullShape != 0 && o.Shape != datum.NullShape && o.Shape != datum.AnyShape
}

// Present returns the outline without null.
func (o *Outline) Present() *Outline {
	if !o.Nullable() {
		return o
	}
	out := *o
	out.Shape &^= datum.NullShape
	out.Optional, out.Why = false, ""
	return &out
}

// Absent returns the outline with null, for a reason.
func (o *Outline) Absent(why string) *Outline {
	if o == nil || o.Shape&datum.NullShape != 0 {
		return o
	}
	out := *o
	out.Shape |= datum.NullShape
	out.Why = why
	return &out
}

// Lacked returns the outline with null for a missing member.
func (o *Outline) Lacked(why string) *Outline {
	if o == nil || o.Shape&datum.NullShape != 0 {
		return o
	}
	out := o.Absent(why)
	out.Optional = true
	return out
}

// Unsure returns the outline of a value that begins like this and may become any value. Only the null is still
// known.
func (o *Outline) Unsure() *Outline {
	if !o.Nullable() {
		return nil
	}
	return &Outline{Shape: datum.AnyShape &^ datum.SecretShape, Why: o.Why, Inferred: o.Inferred, At: o.At}
}

// Supposed returns the outline as an inferred one.
func (o *Outline) Supposed() *Outline {
	if o == nil || o.Inferred {
		return o
	}
	out := *o
	out.Inferred = true
	return &out
}

// OfShape returns an outline with only these types. It returns nil for all types.
func OfShape(s datum.Shape) *Outline {
	if s == datum.AnyShape || s == 0 {
		return nil
	}
	return &Outline{Shape: s}
}

// Of returns the inferred outline of data. Its mappings are closed.
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

// maxChoices limits the choices of an outline.
const maxChoices = 16

// Record returns the outline of a mapping that has all of these members, and no others. The members may be anything where the outline
// is nil.
func Record(members map[string]*Outline) *Outline {
	o := &Outline{Shape: datum.MapShape, Closed: true, Members: make(map[string]*Member, len(members))}
	for name, m := range members {
		o.Members[name] = &Member{Outline: m, Required: true}
	}
	return o
}

// Choice returns the outline of an expression that returns either of two values.
func Choice(a, b *Outline) *Outline {
	choices := slices.Concat(a.choices(), b.choices())
	out := Either(a, b)
	if a == b || len(choices) > maxChoices || !slices.ContainsFunc(choices, func(o *Outline) bool { return o != nil }) {
		return out
	}
	if out == nil {
		out = &Outline{Shape: datum.AnyShape, Inferred: true}
	} else {
		joined := *out
		out = &joined
	}
	out.Choices = choices
	return out
}

func (o *Outline) choices() []*Outline {
	if o == nil || o.Choices == nil {
		return []*Outline{o}
	}
	return o.Choices
}

// Each returns what the value may be one by one: its choices without null, or the outline itself.
func (o *Outline) Each() []*Outline {
	if o == nil || o.Choices == nil {
		return []*Outline{o}
	}
	return o.each()
}

func (o *Outline) each() []*Outline {
	var out []*Outline
	for _, choice := range o.Choices {
		if choice == nil || choice.Shape != datum.NullShape {
			out = append(out, choice.Present())
		}
	}
	return out
}

// Joined returns the outline without its choices: of a value that may be one of them, and need not.
func (o *Outline) Joined() *Outline {
	if o == nil || o.Choices == nil {
		return o
	}
	out := *o
	out.Choices = nil
	return &out
}

// Widened drops possible values and keeps their types, since the initial value of a variable does not limit
// later ones.
func (o *Outline) Widened() *Outline {
	if o == nil || o.Words == nil && o.Choices == nil {
		return o
	}
	out := *o
	out.Words, out.Choices = nil, nil
	if out.Shape&datum.NumberShape != 0 {
		out.Shape |= datum.NumberShape
	}
	return &out
}

// Either returns the outline of a value that fits one of two outlines.
func Either(a, b *Outline) *Outline { return (&joiner{left: 1000}).join(a, b) }

// A joiner joins outlines recursively within a budget, since a schema may be recursive. Beyond the budget
// nothing is known.
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

// orNull adds the null of another outline.
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

// members sets the members of either of two mappings.
func (j *joiner) members(out, a, b *Outline) {
	out.Closed = a.Closed && b.Closed
	if !out.Closed {
		out.Rest = j.join(a.other(), b.other())
	}
	out.Members = make(map[string]*Member, len(a.Members))
	for _, name := range a.MemberNames() { // in order, since the budget would make the result random
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

// lacking returns the outline of a member that only the other mapping has.
func (j *joiner) lacking(o *Outline, m *Member) *Member {
	if o.Closed {
		return &Member{m.Outline, false}
	}
	return &Member{j.join(m.Outline, o.Rest), false}
}

// other returns the outline of unnamed members.
func (o *Outline) other() *Outline {
	if o.Closed {
		return &Outline{Shape: datum.NullShape, Inferred: o.Inferred}
	}
	return o.Rest
}

// maxWords limits the possible values in an outline.
const maxWords = 100

// UnionWords returns the values of both lists without duplicates, or nil if there are too many.
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

// MemberNames returns the sorted names of the known members.
func (o *Outline) MemberNames() []string { return slices.Sorted(maps.Keys(o.Members)) }

// String describes the value for messages: by its possible values if they are few, or by its types.
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

// MayBe reports whether values of both outlines may be equal.
func (o *Outline) MayBe(other *Outline) bool {
	if o == nil || other == nil {
		return true
	}
	if o.Shape&other.Shape&^(datum.BoolShape|datum.NumberShape|datum.StringShape) != 0 {
		return true // two nulls; lists and mappings are not compared
	}
	if !ops.MayEqual(o.Shape, other.Shape) {
		return false
	}
	if o.Words == nil || other.Words == nil {
		return true
	}
	return slices.ContainsFunc(o.Words, func(w any) bool { return ContainsWord(other.Words, w) })
}

// ContainsWord reports whether a value is in a list. 1 equals 1.0.
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

// Dump returns the whole outline as text, for tests and debugging.
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

// OrAny returns the outline, or one without knowledge if it is nil.
func (o *Outline) OrAny() *Outline {
	if o == nil {
		return &Outline{Shape: datum.AnyShape, Why: "its schema does not require it"}
	}
	return o
}

// Told removes a null that the proof of degradation reports: a value that is not set yet.
func (o *Outline) Told() *Outline {
	if o != nil && o.Shape == datum.NullShape && o.Why == "" {
		return nil
	}
	return o
}
