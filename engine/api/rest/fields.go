package rest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/engine/api/problem"
)

// MaxName bounds an id, a key or a name outside of events, in bytes. The engine bounds those of
// events.
const MaxName = 256

// Fields reads the members of an object and records their faults. A null member counts as absent.
// Every requested member is known. All others are faults.
type Fields struct {
	prefix string // of locations: a JSON pointer and a slash, or header/ce-
	inList bool   // the object is an item of an array, whose number follows the prefix
	item   int    // this number, from 0
	text   bool   // all values are text, as in headers
	values map[string]any
	known  []string
	Faults []problem.Fault // faults so far
}

// Object returns the fields of the object v at a JSON pointer.
func Object(pointer string, v any) (*Fields, *problem.Fault) {
	m, ok := v.(map[string]any)
	if !ok {
		fault := noObject(pointer, v)
		return nil, &fault
	}
	return &Fields{prefix: pointer + "/", values: m, known: make([]string, 0, 16)}, nil
}

func noObject(pointer string, v any) problem.Fault {
	return problem.Fault{Location: pointer, Message: "want an object, have " + datum.JSONKind(v)}
}

// TextFields returns fields whose values are all text, as in headers and queries. prefix is that of
// their locations.
func TextFields(prefix string, values map[string]any) *Fields {
	return &Fields{prefix: prefix, text: true, values: values}
}

// Has reports whether a member is present and not null.
func (f *Fields) Has(name string) bool { return f.values[name] != nil }

// Given reports whether a member is present, even if it is null.
func (f *Fields) Given(name string) bool {
	_, there := f.values[name]
	return there
}

// Value returns a member without checking it, or nil.
func (f *Fields) Value(name string) any { return f.values[name] }

// Forget forgets which members are known.
func (f *Fields) Forget() { f.known = nil }

// Fault records a fault of a member.
func (f *Fields) Fault(name, format string, args ...any) {
	f.Faults = append(f.Faults, problem.Fault{Location: f.place() + Escape(name), Message: fmt.Sprintf(format, args...)})
}

// place returns the prefix of the locations of members.
func (f *Fields) place() string {
	if !f.inList {
		return f.prefix
	}
	return f.prefix + strconv.Itoa(f.item) + "/"
}

// Get returns a member, or nil.
func (f *Fields) Get(name string) any {
	f.known = append(f.known, name)
	return f.values[name]
}

// Text returns a text.
func (f *Fields) Text(name string) string {
	v := f.Get(name)
	t, ok := v.(string)
	if v != nil && !ok {
		f.Fault(name, "want a string, have %s", datum.JSONKind(v))
	}
	return t
}

// Required is Text for a member that must be present.
func (f *Fields) Required(name string) string {
	before := len(f.Faults)
	t := f.Text(name)
	if strings.TrimSpace(t) == "" && len(f.Faults) == before {
		f.Fault(name, "want a string that is not empty")
	}
	return t
}

// Label is Text for at most limit bytes without control characters.
func (f *Fields) Label(name string, limit int) string {
	t := f.Text(name)
	switch {
	case len(t) > limit:
		f.Fault(name, "want at most %d bytes, have %d", limit, len(t))
	case !isLabel(t):
		f.Fault(name, "want text in UTF-8 without control characters")
	}
	return t
}

// isLabel reports whether a text is UTF-8 without control characters.
func isLabel(t string) bool {
	return utf8.ValidString(t) && !strings.ContainsFunc(t, unicode.IsControl)
}

// Labels is Label for a list.
func (f *Fields) Labels(name string, limit int) []string {
	v := f.Get(name)
	list, ok := v.([]any)
	if v != nil && !ok {
		f.Fault(name, "want a list of strings, have %s", datum.JSONKind(v))
	}
	item := &Fields{prefix: f.place() + Escape(name) + "/", values: map[string]any{}}
	out := slices.Grow([]string(nil), len(list))
	for i, v := range list {
		if t, ok := v.(string); ok && len(t) <= limit && isLabel(t) {
			out = append(out, t)
			continue
		}
		at := strconv.Itoa(i)
		item.values[at] = v
		if v == nil {
			item.Fault(at, "want a string, have null")
		}
		out = append(out, item.Label(at, limit))
	}
	f.Faults = append(f.Faults, item.Faults...)
	return out
}

// Instant returns a time in UTC, or zero if it is absent.
func (f *Fields) Instant(name string) time.Time {
	v := f.Get(name)
	if v == nil {
		return time.Time{}
	}
	text, _ := v.(string)
	t, err := time.Parse(time.RFC3339, text)
	t = t.UTC() // the year in UTC may differ, and JSON allows four digits
	if err != nil || t.Year() < 1 || t.Year() > 9999 {
		f.Fault(name, "want a time such as 2006-01-02T15:04:05Z, have %s", Shown(v))
		return time.Time{}
	}
	return t
}

// maxDuration is the longest duration that can be added to a time safely.
const maxDuration = 100 * 365 * 24 * time.Hour

// Duration returns a duration: text such as 90s, or a number of seconds.
func (f *Fields) Duration(name string) time.Duration {
	v := f.Get(name)
	var d time.Duration
	var err error
	switch v := v.(type) {
	case nil:
		return 0
	case int:
		d = seconds(float64(v))
	case float64:
		d = seconds(v)
	case string:
		d, err = datum.ParseDuration(v)
	default:
		err = errors.New("not a duration")
	}
	if err != nil || d < 0 || d > maxDuration {
		f.Fault(name, "want a duration such as 90s or 1h30m, or a number of seconds, have %s", Shown(v))
		return 0
	}
	return d
}

// seconds converts a number of seconds. It returns -1, which is refused, if a duration cannot have
// it.
func seconds(n float64) time.Duration {
	if n < 0 || n > maxDuration.Seconds() {
		return -1
	}
	return time.Duration(n * float64(time.Second))
}

// Integer returns a whole number of 32 bits, which every store can keep.
func (f *Fields) Integer(name string) int { return f.whole(name, 32) }

// whole returns a whole number of this many bits.
func (f *Fields) whole(name string, bits int) int {
	v := f.Get(name)
	if v == nil {
		return 0
	}
	n, ok := v.(int)
	if text, isText := v.(string); isText && f.text {
		parsed, err := strconv.Atoi(text)
		n, ok = parsed, err == nil
	}
	if !ok || bits == 32 && (n < math.MinInt32 || n > math.MaxInt32) {
		f.Fault(name, "want a whole number of %d bits, have %s", bits, Shown(v))
		return 0
	}
	return n
}

// Number returns a number.
func (f *Fields) Number(name string) float64 {
	switch v := f.Get(name).(type) {
	case nil:
	case int:
		return float64(v)
	case float64:
		return v
	default:
		f.Fault(name, "want a number, have %s", datum.JSONKind(v))
	}
	return 0
}

// Objects returns the members of a list of objects.
func (f *Fields) Objects(name string, most int) []*Fields {
	v := f.Get(name)
	list, ok := v.([]any)
	if !ok || len(list) == 0 || len(list) > most {
		have := datum.JSONKind(v)
		if ok {
			have = fmt.Sprint("an array of ", len(list))
		}
		f.Fault(name, "want an array of 1 to %d objects, have %s", most, have)
		return nil
	}
	var out []*Fields
	for i, item := range list {
		one, fault := Object(f.place()+Escape(name)+"/"+strconv.Itoa(i), item)
		if fault != nil {
			f.Faults = append(f.Faults, *fault)
			continue
		}
		out = append(out, one)
	}
	return out
}

// Boolean returns a boolean, or false if it is absent.
func (f *Fields) Boolean(name string) bool {
	v := f.Get(name)
	b, ok := v.(bool)
	if text, isText := v.(string); isText && f.text {
		b, ok = text == "true", text == "true" || text == "false"
	}
	if v != nil && !ok {
		f.Fault(name, "want true or false, have %s", Shown(v))
	}
	return b
}

// Unknown returns the members that were not requested, sorted.
func (f *Fields) Unknown() []string {
	var names []string
	for name := range f.values {
		if !slices.Contains(f.known, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// RefuseUnknown records a fault for every member that was not requested.
func (f *Fields) RefuseUnknown() {
	for _, name := range f.Unknown() {
		f.Fault(name, "unknown field %q; %s", name, f.Suggest(name))
	}
}

// Suggest suggests the known member that was probably meant, or lists all.
func (f *Fields) Suggest(name string) string {
	if near := diag.Suggest(name, f.known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(f.known) == 0 {
		return "the call takes none"
	}
	return "known are " + strings.Join(f.known, ", ")
}

// Escape escapes a name for a JSON pointer (RFC 6901).
func Escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// Shown returns a short value as its sender wrote it.
func Shown(v any) string {
	switch v := v.(type) {
	case string:
		const limit = 40
		if len(v) > limit {
			return strconv.Quote(v[:limit]) + "…"
		}
		return strconv.Quote(v)
	case bool, int, float64:
		return fmt.Sprint(v)
	}
	return datum.JSONKind(v)
}

// Joined joins values for people.
func Joined[T ~string](list []T) string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return strings.Join(out, ", ")
}

// Each reads an object, or an array of up to most of them. many reports which it was. The fields are those of one object
// until read returns.
func Each(v any, most int, read func(*Fields)) (many bool, err error) {
	list, many := v.([]any)
	if !many {
		one, fault := Object("", v)
		if fault != nil {
			return false, problem.Body([]problem.Fault{*fault})
		}
		read(one)
		return false, problem.Body(one.Faults)
	}
	if len(list) > most {
		return true, problem.New(problem.InvalidBody, "want at most %d in one array, have %d", most, len(list))
	}
	var faults []problem.Fault
	f := &Fields{prefix: "/", inList: true, known: make([]string, 0, 16)}
	for i, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			faults = append(faults, noObject("/"+strconv.Itoa(i), item))
			continue
		}
		f.item = i
		f.values = m
		f.known = f.known[:0]
		f.Faults = nil
		read(f)
		faults = append(faults, f.Faults...)
	}
	return true, problem.Body(faults)
}
