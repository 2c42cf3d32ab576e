package fields

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/typing"
	"procaas/engine/api/rest"
)

// A Field is a part of a form for data, made from what a schema says of it. Its name is where the value is, as a JSON
// pointer: so the API names what is wrong.
type Field struct {
	Name     string
	Label    string
	Kind     string // text, long, number, choice, group, list or json
	About    string
	Required bool
	Value    string
	Choices  []choice
	Fields   []Field // of a group, or the elements of a list
	Fault    string
	First    bool // the first of the form with a fault
}

// A choice is a value that may be chosen.
type choice struct {
	Value string // as JSON
	Label string
	Given bool
}

// maxFormDepth is how deep forms go: what lies deeper is written as JSON.
const maxFormDepth = 5

// KindOf is the kind of field for what a schema says, and json for what it leaves open.
func KindOf(o *typing.Outline, depth int) string {
	o = o.Present()
	if o == nil || depth > maxFormDepth {
		return "json"
	}
	switch shape := o.Shape; {
	case o.Words != nil:
		return "choice"
	case shape == datum.StringShape:
		return "text"
	case shape&^datum.NumberShape == 0:
		return "number"
	case shape == datum.BoolShape:
		return "choice"
	case shape == datum.MapShape && len(o.Members) > 0:
		return "group"
	case shape == datum.ListShape && o.Elem != nil:
		return "list"
	}
	return "json"
}

// wordsOf are the values of a choice.
func wordsOf(o *typing.Outline) []any {
	if o.Words == nil {
		return []any{true, false}
	}
	return o.Words
}

// unread is what somebody has written that is no JSON.
type unread string

// A FormMaker makes the fields of a form.
type FormMaker struct {
	Faults map[string]string // by the names of their fields; those that are shown are taken out
	More   string            // the list that gets one element more
	marked bool
}

// Field makes the field of a value. given is false when there is none.
func (m *FormMaker) Field(name, label string, o *typing.Outline, required bool, value any, given bool, depth int) Field {
	f := Field{Name: name, Label: label, Kind: KindOf(o, depth), Required: required}
	if o != nil {
		f.About = o.About
	}
	f.Fault = m.Faults[name]
	if f.Fault != "" {
		f.First, m.marked = !m.marked, true
		delete(m.Faults, name)
	}
	switch f.Kind {
	case "group":
		members, _ := value.(map[string]any)
		for _, member := range membersOf(o) {
			v, given := members[member]
			of := o.Members[member]
			f.Fields = append(f.Fields, m.Field(name+"/"+rest.Escape(member), member, of.Outline, of.Required, v, given, depth+1))
		}
	case "list":
		elements, _ := value.([]any)
		n := len(elements)
		if m.More == name || n == 0 && required {
			n++
		}
		for i := range n {
			var v any
			if i < len(elements) {
				v = elements[i]
			}
			f.Fields = append(f.Fields, m.Field(name+"/"+strconv.Itoa(i), "number "+strconv.Itoa(i+1), o.Elem, true, v, i < len(elements), depth+1))
		}
	case "choice":
		for _, w := range wordsOf(o.Present()) {
			text := compact(w)
			f.Choices = append(f.Choices, choice{Value: text, Label: strings.Trim(text, `"`), Given: given && text == compact(value)})
		}
	case "json":
		if text, is := value.(unread); is {
			f.Value = string(text)
		} else if given {
			f.Value = indented(value)
		}
	default:
		if text, is := value.(string); is {
			f.Value = text
		} else if given && value != nil {
			f.Value = compact(value)
		}
		if strings.Contains(f.Value, "\n") {
			f.Kind = "long"
		}
	}
	return f
}

// membersOf lists the members of a mapping in the order in which the file has them. Those of which it says nothing come last.
func membersOf(o *typing.Outline) []string {
	at := func(name string) (file string, line, column int) {
		if of := o.Members[name].Outline; of != nil {
			return of.At.File, of.At.Start.Line, of.At.Start.Column
		}
		return "~", 0, 0
	}
	return slices.SortedFunc(maps.Keys(o.Members), func(a, b string) int {
		fileA, lineA, columnA := at(a)
		fileB, lineB, columnB := at(b)
		return cmp.Or(cmp.Compare(fileA, fileB), cmp.Compare(lineA, lineB), cmp.Compare(columnA, columnB), cmp.Compare(a, b))
	})
}

// ReadField reads what was filled in. given is false for what was left empty. Whether the value fits is for the API to say:
// a number that is none stays the text that it is.
func ReadField(form url.Values, name string, o *typing.Outline, required bool, depth int) (value any, given bool) {
	text := form.Get(name)
	switch KindOf(o, depth) {
	case "group":
		members := map[string]any{}
		for member, of := range o.Members {
			if v, given := ReadField(form, name+"/"+rest.Escape(member), of.Outline, of.Required, depth+1); given {
				members[member] = v
			}
		}
		return members, required || len(members) > 0
	case "list":
		elements := []any{}
		for i := 0; hasField(form, name+"/"+strconv.Itoa(i)); i++ {
			if v, _ := ReadField(form, name+"/"+strconv.Itoa(i), o.Elem, false, depth+1); !isEmpty(v) {
				elements = append(elements, v)
			}
		}
		return elements, required || len(elements) > 0
	case "text":
		if text != "" {
			return text, true
		}
	case "json":
		if strings.TrimSpace(text) == "" {
			break
		}
		fallthrough
	default:
		if text == "" {
			break
		}
		if v, err := datum.ParseJSON([]byte(text)); err == nil {
			return v, true
		}
		if KindOf(o, depth) == "json" {
			return unread(text), true
		}
		return text, true
	}
	return nil, required && o.Nullable()
}

// isEmpty reports whether nothing was filled in.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// hasField reports whether a form has a field of a name, or below it.
func hasField(form url.Values, name string) bool {
	for key := range form {
		if key == name || strings.HasPrefix(key, name+"/") {
			return true
		}
	}
	return false
}

// UnreadAt finds what is no JSON in a value: where it is, and what is wrong with it.
func UnreadAt(name string, value any, faults map[string]string) {
	switch v := value.(type) {
	case unread:
		_, err := datum.ParseJSON([]byte(v))
		faults[name] = "want JSON: " + err.Error()
	case map[string]any:
		for member, x := range v {
			UnreadAt(name+"/"+rest.Escape(member), x, faults)
		}
	case []any:
		for i, x := range v {
			UnreadAt(name+"/"+strconv.Itoa(i), x, faults)
		}
	}
}

// Shows reports whether a form has a field for each part of a value.
func Shows(o *typing.Outline, value any, depth int) bool {
	switch v := value.(type) {
	case map[string]any:
		if KindOf(o, depth) != "group" {
			return KindOf(o, depth) == "json"
		}
		for name, x := range v {
			of := o.Members[name]
			if of == nil || !Shows(of.Outline, x, depth+1) {
				return false
			}
		}
	case []any:
		if KindOf(o, depth) != "list" {
			return KindOf(o, depth) == "json"
		}
		return !slices.ContainsFunc(v, func(x any) bool { return !Shows(o.Elem, x, depth+1) })
	}
	return true
}

// compact writes a value as JSON on one line. What the form sends back has the same kinds of numbers.
func compact(v any) string {
	data, err := datum.FormatKinds(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// indented is compact on several lines.
func indented(v any) string {
	var b bytes.Buffer
	text := compact(v)
	if json.Indent(&b, []byte(text), "", "  ") != nil {
		return text
	}
	return b.String()
}
