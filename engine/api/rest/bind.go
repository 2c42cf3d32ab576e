package rest

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
)

// This file reads requests into structs, by the tags of their fields.
//
//	path:"id", query:"limit", header:"If-Match"   where a parameter is; json:"…" is the name of a member of the body
//	doc, enum, pattern, minimum, maximum, default, minItems, maxItems, format   as in the description
//	maxLength:"512"   the most bytes of a text, 256 when left out; bytes:"1000" is one that is not described, bytes:"any" takes any text
//	want:"…"          the field must be there, and this is said when it is not what is wanted
//	by:"engine"       the engine checks the value itself, by its own codes; the other tags only describe it
//	required:"false"  of Body: it may be left out
//	hint:"…"          of Body: what to say besides to who sends something else than an object
//
// A member of a body without omitempty must be there. What tags cannot say, whoever serves the call
// checks.

// A member is one field of a call's input.
type member struct {
	reflect.StructField
	in       string // path, query, header, or empty for the body
	name     string
	required bool
	optional bool // leaving it out is no fault, and the same as its zero value
	most     int  // bytes of text; -1 for any text
	values   []string
	pattern  *regexp.Regexp
	list     []member // of the elements of a list of objects
}

// membersOf reads the tags of a struct: those of parameters, or those of a body.
func membersOf(t reflect.Type, parameters bool) []member {
	var out []member
	for _, field := range reflect.VisibleFields(t) {
		if m := newMember(field, parameters); m.name != "" {
			out = append(out, m)
		}
	}
	return out
}

// newMember reads the tags of a field. The member has no name if the field is not read.
func newMember(field reflect.StructField, parameters bool) member {
	m := member{StructField: field, most: MaxName}
	name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	if parameters {
		name = ""
		for _, in := range []string{"path", "query", "header"} {
			if at := field.Tag.Get(in); at != "" {
				m.in, name = in, at
			}
		}
	}
	if name == "" || name == "-" || field.Anonymous {
		return m
	}
	m.name = name
	m.required = m.in == "" && !strings.HasPrefix(options, "omit") || m.in != "" && field.Tag.Get("required") == "true"
	m.optional = !m.required && field.Tag.Get("default") == ""
	if text := cmp.Or(field.Tag.Get("bytes"), field.Tag.Get("maxLength")); text == "any" {
		m.most = -1
	} else if text != "" {
		m.most = int(m.number(text))
	}
	if field.Tag.Get("by") == "" {
		if enum := field.Tag.Get("enum"); enum != "" {
			m.values = strings.Split(enum, ",")
		}
		if pattern := field.Tag.Get("pattern"); pattern != "" {
			m.pattern = regexp.MustCompile(pattern)
		}
	}
	if t := field.Type; t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
		m.list = membersOf(t.Elem(), false)
	}
	return m
}

// number reads a number of a tag.
func (m *member) number(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(fmt.Sprintf("field %s: the tag %q is no number", m.Name, text))
	}
	return n
}

// bound returns the number in a tag. known is false if the field has no such tag, or leaves the
// check to the engine.
func (m *member) bound(tag string) (n float64, known bool) {
	text := m.Tag.Get(tag)
	if text == "" || m.Tag.Get("by") != "" {
		return 0, false
	}
	return m.number(text), true
}

// readAll reads the members of an object into the struct at v.
func readAll(members []member, f *Fields, v reflect.Value) {
	for i := range members {
		members[i].read(f, v.FieldByIndex(members[i].Index))
	}
}

// read reads one value, and records its faults.
func (m *member) read(f *Fields, v reflect.Value) {
	given, before := f.Has(m.name), len(f.Faults)
	if v.Kind() == reflect.Pointer {
		if f.Get(m.name); !given {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	m.take(f, v)
	switch {
	case v.Kind() == reflect.Interface && m.required && !f.Given(m.name):
		m.missing(f, "want a value")
	case v.Kind() == reflect.Int, v.Kind() == reflect.Int64:
		m.checkRange(f, v, given)
	case len(f.Faults) > before:
	case v.Kind() == reflect.String:
		m.checkText(f, v.String())
	case v.Kind() == reflect.Slice && m.list == nil:
		m.checkItems(f, v.Len())
	}
}

// take reads a value according to its type.
func (m *member) take(f *Fields, v reflect.Value) {
	switch into := v.Addr().Interface().(type) {
	case *time.Time:
		*into = f.Instant(m.name)
	case *wire.Duration:
		*into = wire.Duration(f.Duration(m.name))
	case *any:
		*into = f.Get(m.name)
	case *bool:
		*into = f.Boolean(m.name)
	case *float64:
		*into = f.Number(m.name)
	case *int64:
		*into = int64(f.whole(m.name, 64))
	case *int:
		*into = f.Integer(m.name)
	case *[]string:
		*into = f.Labels(m.name, m.most)
	default:
		switch {
		case v.Kind() == reflect.String && m.most < 0:
			v.SetString(f.Text(m.name))
		case v.Kind() == reflect.String:
			v.SetString(f.Label(m.name, m.most))
		case m.list != nil:
			m.takeList(f, v)
		default:
			panic(fmt.Sprintf("field %s of a request has the type %s, which nobody reads", m.Name, v.Type()))
		}
	}
}

// takeList reads a list of objects, which may be missing if the member is not required.
func (m *member) takeList(f *Fields, v reflect.Value) {
	if !m.required && f.Get(m.name) == nil {
		return
	}
	most, _ := m.bound("maxItems")
	objects := f.Objects(m.name, int(most))
	v.Set(reflect.MakeSlice(v.Type(), len(objects), len(objects)))
	for i, one := range objects {
		readAll(m.list, one, v.Index(i))
		one.RefuseUnknown()
		f.Faults = append(f.Faults, one.Faults...)
	}
}

// missing records that a value is missing.
func (m *member) missing(f *Fields, want string) {
	f.Fault(m.name, "%s", cmp.Or(m.Tag.Get("want"), want))
}

// wrong records that a value is not the wanted one.
func (m *member) wrong(f *Fields, want, have string) {
	f.Fault(m.name, "%s, have %s", cmp.Or(m.Tag.Get("want"), want), have)
}

func (m *member) checkText(f *Fields, text string) {
	switch {
	case m.required && strings.TrimSpace(text) == "":
		m.missing(f, "want a string that is not empty")
	case text == "":
	case m.values != nil && !slices.Contains(m.values, text):
		f.Fault(m.name, "unknown %s %q; want one of %s", m.name, text, strings.Join(m.values, ", "))
	case m.pattern != nil && !m.pattern.MatchString(text):
		m.wrong(f, "want text like "+m.pattern.String(), Shown(text))
	}
}

// checkRange checks the bounds of a number. A missing optional one gets its default.
func (m *member) checkRange(f *Fields, v reflect.Value, given bool) {
	low, hasLow := m.bound("minimum")
	high, hasHigh := m.bound("maximum")
	n := float64(v.Int())
	switch otherwise, known := m.bound("default"); {
	case known && !given:
		v.SetInt(int64(otherwise))
	case !given && !m.required:
	case hasLow && hasHigh && (n < low || n > high):
		m.wrong(f, fmt.Sprintf("want a number from %v to %v", int64(low), int64(high)), said(f.values[m.name]))
	case hasLow && n < low:
		m.wrong(f, fmt.Sprintf("want a number from %v", int64(low)), said(f.values[m.name]))
	}
}

// said returns a value that should be a number as its sender wrote it.
func said(v any) string {
	if text, ok := v.(string); ok && len(text) <= maxSaid {
		return text
	}
	return Shown(v)
}

const maxSaid = 40 // bytes

func (m *member) checkItems(f *Fields, n int) {
	most, bounded := m.bound("maxItems")
	switch {
	case m.required && n == 0:
		m.missing(f, "want at least one, have none")
	case bounded && n > int(most):
		f.Fault(m.name, "want at most %d, have %d", int(most), n)
	}
}

// A shape describes the input of a call: its parameters and its body.
type shape struct {
	parameters []member
	body       *reflect.StructField // nil for none
	optional   bool                 // the body may be left out
	members    []member             // of the body
}

// shapeOf reads the tags of a call's input. It ignores path parameters that the path does not have.
func shapeOf(t reflect.Type, path string) shape {
	s := shape{parameters: slices.DeleteFunc(membersOf(t, true), func(m member) bool {
		return m.in == "path" && !strings.Contains(path, "{"+m.name+"}")
	})}
	if field, ok := t.FieldByName("Body"); ok {
		s.body, s.optional, s.members = &field, field.Tag.Get("required") == "false", membersOf(field.Type, false)
	}
	return s
}

// read reads a request into the struct at v: first the parameters, then the body.
func (s *shape) read(c *Call, v reflect.Value) error {
	if err := s.readParameters(c.R, v); err != nil || s.body == nil {
		return err
	}
	content, given, err := c.bodyOf(s.optional)
	if err != nil || !given {
		return err
	}
	body := v.FieldByIndex(s.body.Index)
	f, fault := Object("", content)
	if fault != nil {
		fault.Message += s.body.Tag.Get("hint")
		return problem.Body([]problem.Fault{*fault})
	}
	readAll(s.members, f, body)
	f.RefuseUnknown()
	return problem.Body(f.Faults)
}

// bodyOf returns the decoded body.
func (c *Call) bodyOf(optional bool) (v any, given bool, err error) {
	if optional {
		return c.optional()
	}
	v, err = c.JSON()
	return v, true, err
}

// readParameters reads the path, the query and the headers.
func (s *shape) readParameters(r *http.Request, v reflect.Value) error {
	query := queryFields(r.URL)
	var faults []problem.Fault
	for i := range s.parameters {
		m := &s.parameters[i]
		if m.in == "query" {
			if query.Has(m.name) || !m.optional {
				m.read(&query, v.FieldByIndex(m.Index))
			}
			continue
		}
		value, err := m.lookup(r)
		if err != nil {
			return err
		}
		if value == "" && m.optional {
			continue
		}
		one := *m
		one.name = strings.ToLower(m.name)
		f := TextFields(m.in+"/", map[string]any{})
		if value != "" {
			f.values[one.name] = value
		}
		one.read(f, v.FieldByIndex(m.Index))
		faults = append(faults, f.Faults...)
	}
	return problem.Parameter(append(faults, query.Faults...))
}

// lookup returns a path parameter or a header.
func (m *member) lookup(r *http.Request) (string, error) {
	if m.in == "path" {
		return pathValue(r, m.name)
	}
	return r.Header.Get(m.name), nil
}

// pathValue returns a parameter of the path. Routes match the path as it was sent, so that a key
// may contain an escaped slash.
func pathValue(r *http.Request, name string) (string, error) {
	v := chi.URLParam(r, name)
	if r.URL.RawPath == "" {
		return v, nil
	}
	decoded, err := url.PathUnescape(v)
	if err != nil {
		return "", problem.Parameter([]problem.Fault{{Location: "path/" + name, Message: "want percent signs to encode bytes"}})
	}
	return decoded, nil
}

// queryFields returns the fields of a query. A parameter without a value counts as absent, because
// forms send empty fields.
func queryFields(u *url.URL) Fields {
	f := Fields{prefix: "query/", text: true}
	if u.RawQuery == "" {
		return f
	}
	f.values = map[string]any{}
	for name, values := range u.Query() {
		if values[0] != "" {
			f.values[name] = values[0]
		}
		if len(values) > 1 {
			f.Fault(name, "want the parameter once, have it %d times", len(values))
		}
	}
	return f
}
