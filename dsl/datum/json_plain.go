package datum

import "strconv"

// This file parses typical JSON of services: short and without escapes. Handlers decode one document per call,
// and reading it token by token took longer than the rest of handling a reply. Everything else, including
// errors, goes to the other parser.

// A plainJSON is a document and the current position in it.
type plainJSON struct {
	data  []byte
	at    int
	names [16]string // of members, by their bytes
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
	raw, ok := p.raw()
	return string(raw), ok
}

// name is text for the name of a member. The objects of a list often have the same names, which share their memory.
func (p *plainJSON) name() (string, bool) {
	raw, ok := p.raw()
	if !ok || len(raw) == 0 {
		return "", ok
	}
	seen := &p.names[(len(raw)+int(raw[0])+int(raw[len(raw)-1]))%len(p.names)]
	if *seen != string(raw) {
		*seen = string(raw)
	}
	return *seen, true
}

// raw returns the bytes of a string without escapes.
func (p *plainJSON) raw() ([]byte, bool) {
	start := p.at + 1
	for i := start; i < len(p.data); i++ {
		switch c := p.data[i]; {
		case c == '"':
			p.at = i + 1
			return p.data[start:i], true
		case c == '\\' || c < ' ':
			return nil, false
		}
	}
	return nil, false
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
	out = make([]any, 0, 2)
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
		name, ok := p.name()
		if !ok || p.peek() != ':' {
			return nil, false
		}
		p.at++
		v, ok := p.value(level)
		if !ok {
			return nil, false
		}
		before := len(out)
		out[name] = v
		if len(out) == before { // the name is there twice
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
