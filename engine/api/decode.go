package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"procaas/dsl"
	"procaas/dsl/diag"
)

// readBody reads a body that may be as large as the server allows.
func (s *server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	tooLarge := refuse(codeBodyTooLarge, "the body is larger than %d bytes", s.maxBody).with("Connection", "close")
	if r.ContentLength > s.maxBody {
		return nil, tooLarge
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, refuse(codeUnsupportedMedia, "the body is compressed with %s; send it as it is", e).with("Accept-Encoding", "identity")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.maxBody))
	if err == nil {
		return body, nil
	}
	if errors.As(err, new(*http.MaxBytesError)) {
		return nil, tooLarge
	}
	return nil, incomplete(err, len(body), r.ContentLength)
}

// incomplete says that a body has not come as announced.
func incomplete(err error, have int, announced int64) *Problem {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refuse(codeBodyTooSlow, "the body came too slowly: %d of %d bytes came in time, of which %d a second are wanted behind the first %s; nothing was taken in, so send it again",
			have, announced, bodyRate, readTime).with("Connection", "close")
	}
	return refuse(codeInvalidBody, "the body is shorter than announced: %d of %d bytes came; nothing was taken in, so send it again", have, announced).
		with("Connection", "close")
}

// mediaType gives the media type of the body, in lower case. Other charsets
// than UTF-8 are refused.
func mediaType(r *http.Request, accepted ...string) (string, error) {
	header := r.Header.Get("Content-Type")
	media, params, err := mime.ParseMediaType(header)
	charset := params["charset"]
	switch {
	case header == "":
		return "", unsupported("the request has no Content-Type", accepted)
	case err != nil:
		return "", unsupported(fmt.Sprintf("the Content-Type %q is not a media type", header), accepted)
	case charset != "" && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii"):
		return "", unsupported(fmt.Sprintf("the charset %q is not UTF-8", charset), accepted)
	case !slices.Contains(accepted, media):
		return media, unsupported(fmt.Sprintf("%s is not understood", media), accepted)
	}
	return media, nil
}

// unsupported refuses a body, and tells which types are taken.
func unsupported(why string, accepted []string) *Problem {
	list := strings.Join(accepted, ", ")
	return refuse(codeUnsupportedMedia, "%s; send %s", why, list).with("Accept-Post", list)
}

// isJSON tells whether a media type says that its content is JSON.
func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json"))
}

// parse decodes a body strictly.
func parse(body []byte) (any, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, refuse(codeMalformedJSON, "the body is empty")
	}
	v, err := dsl.ParseJSON(body)
	var wrong *dsl.JSONError
	if errors.As(err, &wrong) {
		return nil, refuse(codeMalformedJSON, "%s", wrong).at(Fault{Location: wrong.Pointer, Message: wrong.Message})
	}
	return v, err
}

// readJSON reads a body that must be application/json.
func (s *server) readJSON(w http.ResponseWriter, r *http.Request) (any, error) {
	if _, err := mediaType(r, "application/json"); err != nil {
		return nil, err
	}
	body, err := s.readBody(w, r)
	if err != nil {
		return nil, err
	}
	return parse(body)
}

// readObject reads a body that must be an object in JSON.
func (s *server) readObject(w http.ResponseWriter, r *http.Request) (*fields, error) {
	v, err := s.readJSON(w, r)
	if err != nil {
		return nil, err
	}
	f, fault := objectAt("", v)
	if fault != nil {
		return nil, faulty([]Fault{*fault})
	}
	return f, nil
}

// readOptional is readJSON for a body that may be left out. An empty one of another
// type is what a form of a page sends, and is refused.
func (s *server) readOptional(w http.ResponseWriter, r *http.Request) (v any, given bool, err error) {
	if r.ContentLength != 0 {
		v, err = s.readJSON(w, r)
		return v, true, err
	}
	if r.Header.Get("Content-Type") != "" {
		_, err = mediaType(r, mediaJSON)
	}
	return nil, false, err
}

// The bounds of text that is not part of an event, in bytes. Those of events
// are the engine's.
const (
	maxName   = 256 // an id, a key, a name
	maxCursor = 512
	maxReason = 512
)

// fields reads the members of an object and remembers what is wrong with them.
// A member that is null is absent. Every member that is asked for is known; the
// others are faults.
type fields struct {
	prefix string // of locations: a JSON pointer and a slash, or header/ce-
	text   bool   // all values are text, as in headers
	values map[string]any
	known  []string
	faults []Fault
}

// objectAt makes the fields of the object v, which stands at a JSON pointer.
func objectAt(pointer string, v any) (*fields, *Fault) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, &Fault{Location: pointer, Message: "want an object, have " + kindOf(v)}
	}
	return &fields{prefix: pointer + "/", values: m}, nil
}

func (f *fields) fault(name, format string, args ...any) {
	f.faults = append(f.faults, Fault{Location: f.prefix + escapePointer(name), Message: fmt.Sprintf(format, args...)})
}

// get gives a member; nil when it is absent.
func (f *fields) get(name string) any {
	f.known = append(f.known, name)
	return f.values[name]
}

// str gives text.
func (f *fields) str(name string) string {
	v := f.get(name)
	t, ok := v.(string)
	if v != nil && !ok {
		f.fault(name, "want a string, have %s", kindOf(v))
	}
	return t
}

// required is str for a member that must be there.
func (f *fields) required(name string) string {
	before := len(f.faults)
	t := f.str(name)
	if strings.TrimSpace(t) == "" && len(f.faults) == before {
		f.fault(name, "want a string that is not empty")
	}
	return t
}

// label is str for text of at most limit bytes without control characters.
func (f *fields) label(name string, limit int) string {
	t := f.str(name)
	switch {
	case len(t) > limit:
		f.fault(name, "want at most %d bytes, have %d", limit, len(t))
	case !utf8.ValidString(t) || strings.ContainsFunc(t, unicode.IsControl):
		f.fault(name, "want text in UTF-8 without control characters")
	}
	return t
}

// labels is label for a list.
func (f *fields) labels(name string, limit int) []string {
	v := f.get(name)
	list, ok := v.([]any)
	if v != nil && !ok {
		f.fault(name, "want a list of strings, have %s", kindOf(v))
	}
	item := &fields{prefix: f.prefix + escapePointer(name) + "/", values: map[string]any{}}
	var out []string
	for i, v := range list {
		at := strconv.Itoa(i)
		if item.values[at] = v; v == nil {
			item.fault(at, "want a string, have null")
		}
		out = append(out, item.label(at, limit))
	}
	f.faults = append(f.faults, item.faults...)
	return out
}

// instant gives a time in UTC; zero when it is absent.
func (f *fields) instant(name string) time.Time {
	v := f.get(name)
	if v == nil {
		return time.Time{}
	}
	text, _ := v.(string)
	t, err := time.Parse(time.RFC3339, text)
	t = t.UTC() // may be of another year, which has to fit as well: JSON holds four digits
	if err != nil || t.Year() < 1 || t.Year() > 9999 {
		f.fault(name, "want a time such as 2006-01-02T15:04:05Z, have %s", shown(v))
		return time.Time{}
	}
	return t
}

// maxDuration bounds what can be added to a time without harm.
const maxDuration = 100 * 365 * 24 * time.Hour

// duration gives a span of time: text such as 90s, or a number of seconds.
func (f *fields) duration(name string) time.Duration {
	v := f.get(name)
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
		d, err = dsl.ParseDuration(v)
	default:
		err = errors.New("not a duration")
	}
	if err != nil || d < 0 || d > maxDuration {
		f.fault(name, "want a duration such as 90s or 1h30m, or a number of seconds, have %s", shown(v))
		return 0
	}
	return d
}

// seconds gives a number of seconds; -1 for one that a duration cannot hold, which is refused.
func seconds(n float64) time.Duration {
	if n < 0 || n > maxDuration.Seconds() {
		return -1
	}
	return time.Duration(n * float64(time.Second))
}

// integer gives a whole number of 32 bits, which every store can keep.
func (f *fields) integer(name string) int {
	v := f.get(name)
	if v == nil {
		return 0
	}
	n, ok := v.(int)
	if text, isText := v.(string); isText && f.text {
		parsed, err := strconv.Atoi(text)
		n, ok = parsed, err == nil
	}
	if !ok || n < math.MinInt32 || n > math.MaxInt32 {
		f.fault(name, "want a whole number of 32 bits, have %s", shown(v))
		return 0
	}
	return n
}

// boolean gives true or false; false when it is absent.
func (f *fields) boolean(name string) bool {
	v := f.get(name)
	b, ok := v.(bool)
	if text, isText := v.(string); isText && f.text {
		b, ok = text == "true", text == "true" || text == "false"
	}
	if v != nil && !ok {
		f.fault(name, "want true or false, have %s", shown(v))
	}
	return b
}

// declines tells whether a boolean that is true by default is false.
func (f *fields) declines(name string) bool {
	given := f.get(name) != nil
	return !f.boolean(name) && given
}

// unknown gives the members that were not asked for, in order.
func (f *fields) unknown() []string {
	var names []string
	for name := range f.values {
		if !slices.Contains(f.known, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// refuseUnknown makes a fault of every member that was not asked for.
func (f *fields) refuseUnknown() {
	for _, name := range f.unknown() {
		f.fault(name, "unknown field %q; %s", name, f.suggest(name))
	}
}

// suggest names the known member that was probably meant, or else all of them.
func (f *fields) suggest(name string) string {
	if near := diag.Suggest(name, f.known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(f.known) == 0 {
		return "the call takes none"
	}
	return "known are " + strings.Join(f.known, ", ")
}

// faulty tells all faults in one problem; nil when there are none.
func faulty(faults []Fault) error {
	if len(faults) == 0 {
		return nil
	}
	first := faults[0]
	detail := first.Message
	if first.Location != "" {
		detail = first.Location + ": " + detail
	}
	if more := len(faults) - 1; more > 0 {
		detail += fmt.Sprintf(" (and %d more)", more)
	}
	const shownFaults = 20 // more would not be read; the detail tells how many there are
	return refuse(codeInvalidBody, "%s", detail).at(faults[:min(len(faults), shownFaults)]...)
}

// escapePointer writes a name as a part of a JSON pointer (RFC 6901).
func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// kindOf names the type of a JSON value, with its article.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case int, float64:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "an array"
	}
	return "an object"
}

// shown gives a short value as its sender wrote it.
func shown(v any) string {
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
	return kindOf(v)
}
