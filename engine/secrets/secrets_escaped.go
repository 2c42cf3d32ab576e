package secrets

import (
	"context"
	"encoding/binary"
	"html"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// This file finds secrets that come back with some or all characters escaped, as in JSON, Go,
// JavaScript, HTML, URLs or mail. Each character may be escaped or not, which makes too many forms
// to list. So the text is unescaped instead.

// escapeLevels is how many times a text may have been escaped.
const escapeLevels = 3

// An unescaped is a text without its escapes, and the original positions of its bytes.
type unescaped struct {
	data []byte
	from []int // position of each byte in the text, and of the end
}

// plainText starts with an unchanged text.
func plainText(text string) unescaped {
	u := unescaped{data: []byte(text), from: make([]int, len(text)+1)}
	for i := range u.from {
		u.from[i] = i
	}
	return u
}

// escapeKinds are the first characters of the kinds of escapes.
const escapeKinds = `\%&=`

// unescape removes one level of escapes of some kinds, and reports whether there were any.
func (u *unescaped) unescape(kinds string) bool {
	out := unescaped{data: make([]byte, 0, len(u.data)), from: make([]int, 0, len(u.from))}
	for i := 0; i < len(u.data); {
		plain, n := u.data[i:i+1], 1
		if strings.IndexByte(kinds, u.data[i]) >= 0 {
			if found, width := unescapeOne(string(u.data[i:min(len(u.data), i+longestEscape)])); width > 0 {
				plain, n = found, width
			}
		}
		for range plain {
			out.from = append(out.from, u.from[i])
		}
		out.data = append(out.data, plain...)
		i += n
	}
	out.from = append(out.from, u.from[len(u.data)])
	changed := len(out.data) != len(u.data)
	*u = out
	return changed
}

// hideEscaped hides forms behind escapes: those of one kind, in a text in which the others are
// plain, and those of all kinds, on several levels. The error is that of ctx.
func hideEscaped(ctx context.Context, text string, forms []string, least int) (string, error) {
	if !strings.ContainsAny(text, escapeKinds) {
		return text, nil
	}
	for _, kind := range escapeKinds {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if u := plainText(text); u.unescape(string(kind)) {
			text = u.hide(text, forms, least)
		}
	}
	for level := 1; level <= escapeLevels; level++ {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		u, found := plainText(text), true
		for range level {
			found = u.unescape(escapeKinds)
		}
		if !found {
			break
		}
		text = u.hide(text, forms, least)
	}
	return text, nil
}

// plainForms returns what a text may become when escapes are removed, because it may itself contain
// what looks like escapes.
func plainForms(text string) []string {
	forms := append(recoded(text), strings.TrimSpace(text))
	for _, form := range forms {
		u := plainText(form)
		for range escapeLevels {
			if u.unescape(escapeKinds) {
				forms = append(forms, string(u.data))
			}
		}
	}
	return forms
}

// hide hides the forms in the original text.
func (u *unescaped) hide(text string, forms []string, least int) string {
	var out strings.Builder
	done := 0
	f := newFinder(string(u.data), forms, least)
	for from, to := f.next(); from < to; from, to = f.next() {
		out.WriteString(text[done:u.from[from]])
		out.WriteString(hidden)
		done = u.from[to]
	}
	out.WriteString(text[done:])
	return out.String()
}

// A finder finds forms in data, in order and without overlaps. Longer ones win at the same place. It keeps the next
// place of each form, so each form is searched for in every part of the data once. Without that, a form that does not
// occur would be searched for in all of the rest behind each place of another form.
type finder struct {
	data  string
	forms []string // longest first
	at    int      // end of the last find
	place []int    // next place of each form, from at on; len(data) if there is none

	scanned int // bytes that were searched, for tests
}

// newFinder looks for the forms of at least least bytes. They must be sorted, longest first.
func newFinder(data string, forms []string, least int) *finder {
	short := slices.IndexFunc(forms, func(form string) bool { return len(form) < least })
	if short >= 0 {
		forms = forms[:short]
	}
	f := &finder{data: data, forms: forms, place: make([]int, len(forms))}
	for i := range forms {
		f.search(i)
	}
	return f
}

// search finds the next place of a form.
func (f *finder) search(i int) {
	found := strings.Index(f.data[f.at:], f.forms[i])
	if found < 0 {
		f.scanned += len(f.data) - f.at
		f.place[i] = len(f.data)
		return
	}
	f.scanned += found + len(f.forms[i])
	f.place[i] = f.at + found
}

// next returns where the next form begins and ends. Both are the length of the data if there is none.
func (f *finder) next() (from, to int) {
	from, to = len(f.data), len(f.data)
	for i, form := range f.forms {
		if f.place[i] < f.at {
			f.search(i)
		}
		if f.place[i] < from {
			from = f.place[i]
			to = from + len(form)
		}
	}
	f.at = to
	return from, to
}

// longestEscape bounds an escape, in bytes.
const longestEscape = 12

// unescapeOne returns the meaning of an escape at the start of a text, and its length, or 0 if
// there is none.
func unescapeOne(text string) (plain []byte, width int) {
	switch text[0] {
	case '%':
		if strings.HasPrefix(text, "%u") || strings.HasPrefix(text, "%U") {
			return unescapeUTF16(text, 2)
		}
		return unescapeByte(text, 1)
	case '=':
		return unescapeByte(text, 1)
	case '&':
		end := strings.IndexByte(text, ';')
		if end < 0 {
			return nil, 0
		}
		if meant := html.UnescapeString(text[:end+1]); meant != text[:end+1] {
			return []byte(meant), end + 1
		}
		return nil, 0
	}
	if len(text) < 2 {
		return nil, 0
	}
	switch text[1] {
	case 'u':
		if strings.HasPrefix(text, `\u{`) {
			if end := strings.IndexByte(text, '}'); end > 3 {
				return unescapeRune(text[3:end], end+1)
			}
			return nil, 0
		}
		return unescapeUTF16(text, 2)
	case 'U':
		if len(text) >= 10 {
			return unescapeRune(text[2:10], 10)
		}
		return nil, 0
	case 'x':
		return unescapeByte(text, 2)
	}
	if i := strings.IndexByte("ntrbfva0\"'/\\", text[1]); i >= 0 {
		return []byte{"\n\t\r\b\f\v\a\x00\"'/\\"[i]}, 2
	}
	return nil, 0
}

// unescapeByte reads two hexadecimal digits.
func unescapeByte(text string, at int) ([]byte, int) {
	if len(text) < at+2 {
		return nil, 0
	}
	n, err := strconv.ParseUint(text[at:at+2], 16, 8)
	if err != nil {
		return nil, 0
	}
	return []byte{byte(n)}, at + 2
}

// unescapeUTF16 reads four hexadecimal digits, and another four if these are half of a character.
func unescapeUTF16(text string, at int) ([]byte, int) {
	half := func(from int) (rune, bool) {
		if len(text) < from+4 {
			return 0, false
		}
		n, err := strconv.ParseUint(text[from:from+4], 16, 16)
		return rune(n), err == nil
	}
	r, ok := half(at)
	if !ok {
		return nil, 0
	}
	if utf16.IsSurrogate(r) {
		if second, ok := half(2*at + 4); ok && strings.EqualFold(text[at+4:2*at+4], text[:at]) {
			if whole := utf16.DecodeRune(r, second); whole != utf8.RuneError {
				return utf8.AppendRune(nil, whole), 2 * (at + 4)
			}
		}
		return nil, 0
	}
	return utf8.AppendRune(nil, r), at + 4
}

// unescapeRune reads the hexadecimal number of a character.
func unescapeRune(digits string, width int) ([]byte, int) {
	n, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || n > utf8.MaxRune {
		return nil, 0
	}
	return utf8.AppendRune(nil, rune(n)), width
}

// recoded returns a text in the encodings in which it may come back, itself first: UTF-8, Latin-1,
// UTF-16 in both byte orders, and UTF-8 read as Latin-1.
func recoded(text string) []string {
	forms := []string{text}
	latin, misread, fits := []byte{}, []byte{}, true
	for _, r := range text {
		latin, fits = append(latin, byte(r)), fits && r < 0x100
	}
	if fits {
		forms = append(forms, string(latin))
	}
	for i := range len(text) {
		misread = utf8.AppendRune(misread, rune(text[i]))
	}
	little, big := []byte{}, []byte{}
	for _, unit := range utf16.Encode([]rune(text)) {
		little, big = binary.LittleEndian.AppendUint16(little, unit), binary.BigEndian.AppendUint16(big, unit)
	}
	return append(forms, string(misread), string(little), string(big))
}
