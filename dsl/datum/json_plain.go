package datum

import "strconv"

// This file parses typical JSON of services: short and without escapes. Handlers decode one document per call,
// and reading it token by token took longer than the rest of handling a reply. Everything else, including
// errors, goes to the other parser.

// A plainJSON is a document and the current position in it.
type plainJSON struct {
	data []byte
	at   int
}

// ParsePlainJSON parses a document of valid UTF-8. ok is false if the document needs the other parser.
func ParsePlainJSON(data []byte) (v any, ok bool) {
	p := plainJSON{data: data}
	v, ok = p.value(0)
	if !ok {
		return nil, false
	}
	p.skipSpace()
	return v, p.at == len(p.data)
}

// peek returns the next byte that is not white space, or 0 at the end.
func (p *plainJSON) peek() byte {
	p.skipSpace()
	if p.at == len(p.data) {
		return 0
	}
	return p.data[p.at]
}

func (p *plainJSON) skipSpace() {
	for p.at < len(p.data) {
		switch p.data[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

func (p *plainJSON) value(level int) (any, bool) {
	switch c := p.peek(); {
	case c == '"':
		return p.text()
	case c == '{' && level < MaxLevels:
		return p.object(level + 1)
	case c == '[' && level < MaxLevels:
		return p.list(level + 1)
	case c == 't':
		return true, p.word("true")
	case c == 'f':
		return false, p.word("false")
	case c == 'n':
		return nil, p.word("null")
	case c == '-' || isDigit(c):
		return p.number()
	}
	return nil, false
}

func (p *plainJSON) word(want string) bool {
	if len(p.data)-p.at < len(want) || string(p.data[p.at:p.at+len(want)]) != want {
		return false
	}
	p.at += len(want)
	return true
}

// text parses a string without escapes.
func (p *plainJSON) text() (string, bool) {
	start := p.at + 1
	for i := start; i < len(p.data); i++ {
		switch c := p.data[i]; {
		case c == '"':
			p.at = i + 1
			return string(p.data[start:i]), true
		case c == '\\' || c < ' ':
			return "", false
		}
	}
	return "", false
}

func (p *plainJSON) number() (any, bool) {
	start, whole := p.at, true
	if p.data[p.at] == '-' {
		p.at++
	}
	first := p.at
	if n := p.digits(); n == 0 || n > 1 && p.data[first] == '0' {
		return nil, false
	}
	if p.at < len(p.data) && p.data[p.at] == '.' {
		p.at++
		whole = false
		if p.digits() == 0 {
			return nil, false
		}
	}
	if p.at < len(p.data) && (p.data[p.at] == 'e' || p.data[p.at] == 'E') {
		p.at++
		if p.at < len(p.data) && (p.data[p.at] == '+' || p.data[p.at] == '-') {
			p.at++
		}
		whole = false
		if p.digits() == 0 {
			return nil, false
		}
	}
	text := string(p.data[start:p.at])
	if whole {
		n, err := strconv.Atoi(text)
		return n, err == nil
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil
}

// digits skips digits and returns how many there were.
func (p *plainJSON) digits() (n int) {
	for ; p.at < len(p.data) && isDigit(p.data[p.at]); n++ {
		p.at++
	}
	return n
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func (p *plainJSON) list(level int) (any, bool) {
	out := []any{}
	p.at++
	if p.peek() == ']' {
		p.at++
		return out, true
	}
	for {
		v, ok := p.value(level)
		if !ok {
			return nil, false
		}
		out = append(out, v)
		switch c := p.peek(); c {
		case ',', ']':
			p.at++
			if c == ']' {
				return out, true
			}
		default:
			return nil, false
		}
	}
}

func (p *plainJSON) object(level int) (any, bool) {
	out := map[string]any{}
	p.at++
	if p.peek() == '}' {
		p.at++
		return out, true
	}
	for {
		if p.peek() != '"' {
			return nil, false
		}
		name, ok := p.text()
		if !ok || p.peek() != ':' {
			return nil, false
		}
		p.at++
		if _, twice := out[name]; twice {
			return nil, false
		}
		out[name], ok = p.value(level)
		if !ok {
			return nil, false
		}
		switch c := p.peek(); c {
		case ',', '}':
			p.at++
			if c == '}' {
				return out, true
			}
		default:
			return nil, false
		}
	}
}
