package datum

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// ParseJSON decodes one JSON value to nil, bool, int, float64, string, []any or map[string]any. Integers are
// exact. These are errors: integers of more than 64 bits, duplicate names, U+0000, invalid UTF-8, more than 64
// levels, and anything after the value. The error is a [*JSONError].
func ParseJSON(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, &JSONError{Message: "want UTF-8 text, have bytes that are none"}
	}
	if v, ok := ParsePlainJSON(data); ok {
		return v, nil
	}
	return ParseAnyJSON(data)
}

// ParseAnyJSON is ParseJSON token by token, so its errors have positions.
func ParseAnyJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	p := &jsonParser{Decoder: d, data: data}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	end := int(d.InputOffset())
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		more := len(data) - len(bytes.TrimLeft(data[end:], " \t\r\n"))
		return nil, p.fail("want nothing after the JSON value, have more at %v", placeIn(data, more))
	}
	return v, nil
}

// A JSONError is the position of an error in a JSON document, and what was expected there.
type JSONError struct {
	Pointer string // RFC 6901; empty for the document as a whole
	Message string
}

// Error implements error.
func (e *JSONError) Error() string {
	if e.Pointer == "" {
		return "the document: " + e.Message
	}
	return e.Pointer + ": " + e.Message
}

// A TextPlace is a position in a text, as editors count: from 1, columns in characters.
type TextPlace struct{ Line, Column int }

// String returns the place as in "line 2, column 7".
func (p TextPlace) String() string { return fmt.Sprintf("line %d, column %d", p.Line, p.Column) }

// placeIn returns the place of a byte of a text.
func placeIn(text []byte, offset int) TextPlace {
	before := text[:min(max(offset, 0), len(text))]
	line := 1 + bytes.Count(before, []byte("\n"))
	return TextPlace{line, 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])}
}

// A JSONFault is the first place where a text is not JSON.
type JSONFault struct {
	TextPlace

	Problem string
}

// String returns the place and the problem.
func (f *JSONFault) String() string { return f.TextPlace.String() + ": " + f.Problem }

// FindJSONFault returns where a text is not JSON, or nil if it is.
func FindJSONFault(text []byte) *JSONFault {
	err := json.Unmarshal(text, new(json.RawMessage))
	if err == nil {
		return nil
	}
	offset, problem := len(text), "the text ends too early"
	if wrong, ok := errors.AsType[*json.SyntaxError](err); ok && !strings.HasPrefix(wrong.Error(), "unexpected end") {
		offset, problem = int(wrong.Offset)-1, wrong.Error() // the offset is that of the byte after the wrong one
	}
	return &JSONFault{placeIn(text, offset), problem}
}

// A jsonParser builds data from the tokens of a document.
type jsonParser struct {
	*json.Decoder
	data []byte
	path []string
}

func (p *jsonParser) fail(format string, args ...any) error {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	e := &JSONError{Message: fmt.Sprintf(format, args...)}
	for _, name := range p.path {
		e.Pointer += "/" + escape.Replace(name)
	}
	return e
}

// next returns the next token.
func (p *jsonParser) next() (json.Token, error) {
	t, err := p.Token()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, p.fail("want a JSON value, have the end of the text")
	case err != nil:
		return nil, p.fail("want JSON, have at %v", FindJSONFault(p.data))
	}
	return t, nil
}

func (p *jsonParser) value(level int) (any, error) {
	start := p.InputOffset()
	t, err := p.next()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		if level == MaxLevels {
			return nil, p.fail("want at most %d levels", MaxLevels)
		}
		if t == '[' {
			return p.list(level + 1)
		}
		return p.object(level + 1)
	case json.Number:
		return p.number(string(t))
	case string:
		return t, p.checkString(t, start)
	}
	return t, nil // null, true, false
}

func (p *jsonParser) number(text string) (any, error) {
	if !strings.ContainsAny(text, ".eE") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, p.fail("want a whole number of at most 64 bits, have %.40s", text)
		}
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, p.fail("want a number that fits in 64 bits, have %.40s", text)
	}
	return f, nil
}

// checkString refuses what a store cannot keep: U+0000 and lone surrogates, which the decoder has replaced
// silently.
func (p *jsonParser) checkString(s string, start int64) error {
	if strings.ContainsRune(s, 0) {
		return p.fail("want text without U+0000")
	}
	if strings.ContainsRune(s, utf8.RuneError) && loneSurrogate(p.data[start:p.InputOffset()]) {
		return p.fail("want whole characters, have half of a surrogate pair")
	}
	return nil
}

// loneSurrogate reports whether the source of a string has an escape that is half of a surrogate pair.
func loneSurrogate(source []byte) bool {
	for i := 0; i+1 < len(source); i++ {
		if source[i] != '\\' {
			continue
		}
		i++
		if source[i] != 'u' {
			continue
		}
		r := escaped(source[i:])
		if !utf16.IsSurrogate(r) {
			continue
		}
		if i+5 >= len(source) || source[i+5] != '\\' || utf16.DecodeRune(r, escaped(source[i+6:])) == utf8.RuneError {
			return true
		}
		i += 10
	}
	return false
}

// escaped parses u and four hexadecimal digits. It returns 0 if they are missing.
func escaped(source []byte) rune {
	if len(source) < 5 || source[0] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(source[1:5]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}

func (p *jsonParser) list(level int) (any, error) {
	out := []any{}
	for i := 0; p.More(); i++ {
		p.path = append(p.path, strconv.Itoa(i))
		v, err := p.value(level)
		if err != nil {
			return nil, err
		}
		p.path = p.path[:len(p.path)-1]
		out = append(out, v)
	}
	_, err := p.next() // the closing bracket
	return out, err
}

func (p *jsonParser) object(level int) (any, error) {
	out := map[string]any{}
	for p.More() {
		start := p.InputOffset()
		t, err := p.next()
		if err != nil {
			return nil, err
		}
		name := t.(string)
		p.path = append(p.path, name)
		if err := p.checkString(name, start); err != nil {
			return nil, err
		}
		if _, ok := out[name]; ok {
			return nil, p.fail("want each name once, have it twice")
		}
		if out[name], err = p.value(level); err != nil {
			return nil, err
		}
		p.path = p.path[:len(p.path)-1]
	}
	_, err := p.next() // the closing brace
	return out, err
}

// WriteJSON writes a report that people may read: indented, and without needless escapes.
func WriteJSON(w io.Writer, report any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(report)
}

// FormatJSON encodes data canonically: names are sorted, and there is no white space and no needless escape. So
// equal data has equal bytes.
func FormatJSON(data any) ([]byte, error) { return appendJSON(make([]byte, 0, 64), data, 0, false) }

// AppendJSON appends what FormatJSON returns.
func AppendJSON(b []byte, data any) ([]byte, error) { return appendJSON(b, data, 0, false) }

// AppendText appends a text as a string of JSON.
func AppendText(b []byte, text string) []byte { return appendJSONString(b, text) }

// AppendTime appends a time as a string of JSON, as encoding/json writes it.
func AppendTime(b []byte, t time.Time) []byte {
	return append(t.AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
}

// FormatKinds is FormatJSON for data that expressions will read again: it writes a whole float as 5.0. [ParseJSON] returns
// the same kinds of numbers, so a sum overflows, or not, as it would have without a crash.
func FormatKinds(data any) ([]byte, error) { return appendJSON(make([]byte, 0, 64), data, 0, true) }

func appendJSON(b []byte, data any, level int, kinds bool) ([]byte, error) {
	if level > MaxLevels {
		return nil, fmt.Errorf("want at most %d levels", MaxLevels)
	}
	switch v := data.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return nil, errors.New("want a finite number, have one that JSON cannot hold")
		}
		if math.Abs(v) >= 1<<53 { // digits alone would be read as another, whole number
			return strconv.AppendFloat(b, v, 'e', -1, 64), nil
		}
		b = append(b, FormatFloat(v)...)
		if kinds && v == math.Trunc(v) {
			b = append(b, ".0"...)
		}
		return b, nil
	case string:
		return appendJSONString(b, v), nil
	case []any:
		return appendJSONList(b, v, level+1, kinds)
	case map[string]any:
		return appendJSONObject(b, v, level+1, kinds)
	}
	return nil, fmt.Errorf("want data, have %s", Describe(data))
}

func appendJSONList(b []byte, list []any, level int, kinds bool) (_ []byte, err error) {
	b = append(b, '[')
	for i, x := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendJSON(b, x, level, kinds); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendJSONObject(b []byte, object map[string]any, level int, kinds bool) (_ []byte, err error) {
	var few [8]string // enough for most objects
	names := few[:0]
	for k := range object {
		names = append(names, k)
	}
	slices.Sort(names)
	b = append(b, '{')
	for i, k := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendJSONString(b, k), ':')
		if b, err = appendJSON(b, object[k], level, kinds); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// IsPlainText reports whether a text is ASCII that needs no escape.
func IsPlainText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// appendJSONString escapes only what JSON requires. Invalid UTF-8 becomes U+FFFD.
func appendJSONString(b []byte, s string) []byte {
	b = append(b, '"')
	if IsPlainText(s) {
		return append(append(b, s...), '"')
	}
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r < 0x20:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// JSONKind returns the JSON type of a value, with its article. Integers are numbers too: 1 may become 1.5.
func JSONKind(v any) string {
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
