package source

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf16"

	"gopkg.in/yaml.v3"
)

// maxEscaped bounds how many texts of a file may have escapes of JSON that the parser does not know. The file is parsed
// again for each of them.
const maxEscaped = 50

// pair is a character beyond U+FFFF as JSON escapes it.
var pair = regexp.MustCompile(`^\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})`)

// readEscapes replaces escapes that JSON and YAML 1.2 have, but the parser does not: \/ and surrogate pairs. err is where the
// parser failed. Spaces behind the closing quote keep the columns of what follows. Lines stays as it is.
func (s *Source) readEscapes(dec *yaml.Decoder, err error) bool {
	f := failureOf(dec, err)
	if s.escaped == maxEscaped || !strings.Contains(f.problem, "unknown escape character") &&
		!strings.Contains(f.problem, "invalid Unicode character escape") {
		return false
	}
	at := offsetOf(s.Data, f.at.Line, f.at.Column)
	from := bytes.LastIndexByte(s.Data[:min(at+1, len(s.Data))], '\\')
	if from < 0 {
		return false
	}
	var text []byte
	i, saved, changed := from, 0, false
	for ; i < len(s.Data) && s.Data[i] != '"'; i++ {
		rest := s.Data[i:]
		switch m := pair.FindSubmatch(rest); {
		case bytes.HasPrefix(rest, []byte(`\/`)):
			text, saved, changed = append(text, '/'), saved+1, true
			i++
		case m != nil:
			text = fmt.Appendf(text, `\U%08X`, utf16.DecodeRune(unit(m[1]), unit(m[2])))
			saved, changed = saved+len(m[0])-len(`\U00000000`), true
			i += len(m[0]) - 1
		case rest[0] == '\\' && len(rest) > 1:
			text = append(text, rest[:2]...)
			i++
		case rest[0] == '\n':
			text, saved = append(text, '\n'), 0
		default:
			text = append(text, rest[0])
		}
	}
	if !changed || i == len(s.Data) {
		return false
	}
	text = append(text, '"')
	text = append(text, bytes.Repeat([]byte(" "), saved)...)
	s.Data = bytes.Join([][]byte{s.Data[:from], text, s.Data[i+1:]}, nil)
	s.escaped++
	return true
}

// unit reads a UTF-16 code unit of four hexadecimal digits.
func unit(digits []byte) rune {
	var b [2]byte
	if _, err := hex.Decode(b[:], digits); err != nil {
		return 0
	}
	return rune(b[0])<<8 | rune(b[1])
}

// offsetOf returns the offset of a position, counted from 1 in runes.
func offsetOf(data []byte, line, column int) int {
	offset := 0
	for ; line > 1; line-- {
		end := bytes.IndexByte(data[offset:], '\n')
		if end < 0 {
			return len(data)
		}
		offset += end + 1
	}
	for i := range string(data[offset:]) {
		column--
		if column == 0 {
			return offset + i
		}
	}
	return len(data)
}
