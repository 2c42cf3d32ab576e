package dsl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"procaas/dsl/diag"
)

// An outline is what is known of a value before it is there: the types that it
// may have, and what is known of its parts. A nil outline knows nothing, and
// nothing is checked against it. Outlines are never changed: many places share
// one, and one may hold itself.
type outline struct {
	shape shape

	// members are the known members of a mapping. When closed is true it has no
	// others; otherwise others are as rest says.
	members map[string]*member
	closed  bool
	rest    *outline

	elem  *outline // of a list
	words []any    // the only values there are besides null; nil for any

	// why says how it comes to be null, when its shape has null among others:
	// "it is optional in …". Empty when nobody needs to be told, because the proof
	// of degradation looks at it.
	why string

	// optional says that it is null because a mapping may lack it, and not
	// otherwise.
	optional bool

	// inferred is true when no schema says it, only the values that expressions
	// give. What contradicts it is a warning.
	inferred bool

	at diag.Span // where a schema says it; zero for none
}

// A member is what is known of one member of a mapping.
type member struct {
	*outline
	required bool
}

// types are those that a value may have.
func (o *outline) types() shape {
	if o == nil {
		return anyShape
	}
	return o.shape
}

// nullable tells whether it is known that a value may be null, and that it need
// not be.
func (o *outline) nullable() bool {
	return o != nil && o.shape&nullShape != 0 && o.shape != nullShape && o.shape != anyShape
}

// present is the outline of a value that is not null.
func (o *outline) present() *outline {
	if !o.nullable() {
		return o
	}
	out := *o
	out.shape &^= nullShape
	out.optional, out.why = false, ""
	return &out
}

// absent is the outline of a value that may also be null, for a reason.
func (o *outline) absent(why string) *outline {
	if o == nil || o.shape&nullShape != 0 {
		return o
	}
	out := *o
	out.shape |= nullShape
	out.why = why
	return &out
}

// lacked is the outline of a value that is null where a mapping lacks it.
func (o *outline) lacked(why string) *outline {
	if o == nil || o.shape&nullShape != 0 {
		return o
	}
	out := o.absent(why)
	out.optional = true
	return out
}

// unsure is the outline of a value that begins as this one and may become any: only
// that it may be null is still known.
func (o *outline) unsure() *outline {
	if !o.nullable() {
		return nil
	}
	return &outline{shape: anyShape &^ secretShape, why: o.why, inferred: o.inferred, at: o.at}
}

// supposed is the outline as something that no schema promises.
func (o *outline) supposed() *outline {
	if o == nil || o.inferred {
		return o
	}
	out := *o
	out.inferred = true
	return &out
}

// ofShape is the outline of a value of which only types are known; nil for any.
func ofShape(s shape) *outline {
	if s == anyShape || s == 0 {
		return nil
	}
	return &outline{shape: s}
}

// outlineOf gives the outline of data, which no schema promises. Its mappings have
// these members and no others.
func outlineOf(v any) *outline {
	switch v := v.(type) {
	case []any:
		out := &outline{shape: listShape, inferred: true}
		for i, x := range v {
			if i == 0 {
				out.elem = outlineOf(x)
				continue
			}
			out.elem = either(out.elem, outlineOf(x))
		}
		return out
	case map[string]any:
		out := &outline{shape: mapShape, closed: true, inferred: true, members: make(map[string]*member, len(v))}
		for k, x := range v {
			out.members[k] = &member{outlineOf(x), true}
		}
		return out
	}
	out := &outline{shape: shapeOfValue(v), inferred: true}
	if v != nil {
		out.words = []any{v}
	}
	return out
}

// widened forgets which values there are and keeps their types: what a variable
// begins with does not bound what it may become.
func (o *outline) widened() *outline {
	if o == nil || o.words == nil {
		return o
	}
	out := *o
	out.words = nil
	if out.shape&numberShape != 0 {
		out.shape |= numberShape
	}
	return &out
}

// either is the outline of a value that is as one of two say.
func either(a, b *outline) *outline { return (&joiner{left: 1000}).join(a, b) }

// A joiner joins outlines down to their parts, as long as there is something left
// of its budget; of the rest nothing is known. A schema may hold itself.
type joiner struct{ left int }

func (j *joiner) join(a, b *outline) *outline {
	j.left--
	switch {
	case a == nil || b == nil || j.left < 0:
		return nil
	case a == b:
		return a
	case a.shape == nullShape:
		return b.orNull(a)
	case b.shape == nullShape:
		return a.orNull(b)
	}
	out := &outline{shape: a.shape | b.shape, inferred: a.inferred || b.inferred, at: a.at}
	if out.shape == anyShape {
		return nil
	}
	out.why = a.why
	if out.why == "" {
		out.why = b.why
	}
	if a.words != nil && b.words != nil {
		out.words = unionWords(a.words, b.words)
	}
	switch aMap, bMap := a.shape&mapShape != 0, b.shape&mapShape != 0; {
	case aMap && bMap:
		j.members(out, a, b)
	case aMap:
		out.members, out.closed, out.rest = a.members, a.closed, a.rest
	case bMap:
		out.members, out.closed, out.rest = b.members, b.closed, b.rest
	}
	switch aList, bList := a.shape&listShape != 0, b.shape&listShape != 0; {
	case aList && bList:
		out.elem = j.join(a.elem, b.elem)
	case aList:
		out.elem = a.elem
	case bList:
		out.elem = b.elem
	}
	return out
}

// orNull is the outline of a value that may also be the null that null tells of.
func (o *outline) orNull(null *outline) *outline {
	out := *o
	out.shape |= nullShape
	out.optional = false
	out.inferred = o.inferred || null.inferred
	if out.why == "" {
		out.why = null.why
	}
	return &out
}

// members gives out the members of either of two mappings.
func (j *joiner) members(out, a, b *outline) {
	out.closed = a.closed && b.closed
	if !out.closed {
		out.rest = j.join(a.other(), b.other())
	}
	out.members = make(map[string]*member, len(a.members))
	for _, name := range a.memberNames() { // in order, or the budget would make it chance
		m := a.members[name]
		if n := b.members[name]; n != nil {
			out.members[name] = &member{j.join(m.outline, n.outline), m.required && n.required}
		} else {
			out.members[name] = j.lacking(b, m)
		}
	}
	for _, name := range b.memberNames() {
		if out.members[name] == nil {
			out.members[name] = j.lacking(a, b.members[name])
		}
	}
}

// lacking is what a member is that only the other one of two mappings names.
func (j *joiner) lacking(o *outline, m *member) *member {
	if o.closed {
		return &member{m.outline, false}
	}
	return &member{j.join(m.outline, o.rest), false}
}

// other is what the members are that have no name here.
func (o *outline) other() *outline {
	if o.closed {
		return &outline{shape: nullShape, inferred: o.inferred}
	}
	return o.rest
}

// maxWords bounds the values that an outline lists.
const maxWords = 100

func unionWords(a, b []any) []any {
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

// memberNames lists the known members in order.
func (o *outline) memberNames() []string { return slices.Sorted(maps.Keys(o.members)) }

// String says what the value may be, for people: its values when they are few,
// else its types.
func (o *outline) String() string {
	if o == nil {
		return "any value"
	}
	const few = 6
	if len(o.words) == 0 || len(o.words) > few {
		return o.shape.String()
	}
	if o.shape&nullShape != 0 {
		return oneOf(append(slices.Clip(o.words), nil))
	}
	return oneOf(o.words)
}

// mayBe tells whether a value of the outline may equal one of another.
func (o *outline) mayBe(other *outline) bool {
	if o == nil || other == nil {
		return true
	}
	if o.shape&other.shape&^(boolShape|numberShape|stringShape) != 0 {
		return true // two nulls, or lists and mappings, into which we do not look
	}
	if !mayEqual(o.shape, other.shape) {
		return false
	}
	if o.words == nil || other.words == nil {
		return true
	}
	return slices.ContainsFunc(o.words, func(w any) bool { return containsWord(other.words, w) })
}

// containsWord tells whether a value is among others; 1 and 1.0 are the same.
func containsWord(words []any, w any) bool {
	return slices.ContainsFunc(words, func(x any) bool {
		same, err := equal(&meter{}, x, w)
		return err == nil && same
	})
}

// textWords lists the strings among the words, for suggestions.
func (o *outline) textWords() []string {
	var out []string
	for _, w := range o.words {
		if s, ok := w.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// dump writes an outline in full, for tests and for people who ask.
func (o *outline) dump(depth int) string {
	if o == nil {
		return "any"
	}
	if depth == 0 {
		return "…"
	}
	var parts []string
	if scalar := o.shape &^ (mapShape | listShape | nullShape); scalar != 0 {
		parts = append(parts, (&outline{shape: scalar, words: o.words}).String())
	}
	if o.shape&listShape != 0 {
		parts = append(parts, "["+o.elem.dump(depth-1)+"]")
	}
	if o.shape&mapShape != 0 {
		var fields []string
		for _, name := range o.memberNames() {
			m, mark := o.members[name], "?"
			if m.required {
				mark = ""
			}
			fields = append(fields, fmt.Sprintf("%s%s: %s", name, mark, m.dump(depth-1)))
		}
		if !o.closed {
			fields = append(fields, "…: "+o.rest.dump(depth-1))
		}
		parts = append(parts, "{"+strings.Join(fields, ", ")+"}")
	}
	if o.shape&nullShape != 0 {
		parts = append(parts, "null")
	}
	return strings.Join(parts, " | ")
}
