package secrets

import (
	"encoding/binary"
	"html"
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
// plain, and those of all kinds, on several levels.
func hideEscaped(text string, forms []string, least int) string {
	if !strings.ContainsAny(text, escapeKinds) {
		return text
	}
	for _, kind := range escapeKinds {
		if u := plainText(text); u.unescape(string(kind)) {
			text = u.hide(text, forms, least)
		}
	}
	for level := 1; level <= escapeLevels; level++ {
		u, found := plainText(text), true
		for range level {
			found = u.unescape(escapeKinds)
		}
		if !found {
			break
		}
		text = u.hide(text, forms, least)
	}
	return text
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
	data, done := string(u.data), 0
	for _, span := range findForms(data, forms, least) {
		out.WriteString(text[done:u.from[span[0]]])
		out.WriteString(hidden)
		done = u.from[span[1]]
	}
	out.WriteString(text[done:])
	return out.String()
}

// findForms returns the positions of forms, in order, without overlaps. Longer ones win.
func findForms(data string, forms []string, least int) (spans [][2]int) {
	for at := 0; at < len(data); {
		first, end := len(data), len(data)
		for _, form := range forms {
			if len(form) < least {
				continue
			}
			if i := strings.Index(data[at:min(len(data), first+len(form))], form); i >= 0 && at+i < first {
				first, end = at+i, at+i+len(form)
			}
		}
		if first == len(data) {
			break
		}
		spans, at = append(spans, [2]int{first, end}), end
	}
	return spans
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
