package language

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Statement is what the text of a statement says without a server.
type Statement struct {
	Verb       string // its first word, in lower case
	Parameters int    // the highest N of $N; 0 for none
	Quoted     bool   // a $N is inside of quotes, where it is text
}

// verbs are what a statement may begin with. Others end the transaction of the call, change the connection, or cannot be in a
// transaction.
var verbs = []string{"select", "insert", "update", "delete", "merge", "with", "values", "call"}

// maxParameters is how many parameters the protocol of PostgreSQL has room for.
const maxParameters = 65535

// ParseStatement reads the text of a statement: a single one, whose parameters are $1, $2 and so on. The server checks the rest.
func ParseStatement(text string) (Statement, error) {
	s := scanner{rest: text, used: map[int]bool{}}
	if strings.ContainsRune(text, 0) {
		return s.found, errors.New("the statement has a character 0, which PostgreSQL does not take")
	}
	for s.rest != "" {
		if err := s.next(); err != nil {
			return s.found, err
		}
	}
	switch {
	case s.found.Verb == "":
		return s.found, errors.New("the statement is empty")
	case !slices.Contains(verbs, s.found.Verb):
		return s.found, fmt.Errorf("want a statement that begins with %s or %s, have %q", strings.Join(verbs[:len(verbs)-1], ", "),
			verbs[len(verbs)-1], s.found.Verb)
	}
	for n := range s.found.Parameters {
		if !s.used[n+1] {
			return s.found, fmt.Errorf("the statement has $%d, and no $%d", s.found.Parameters, n+1)
		}
	}
	return s.found, nil
}

// A scanner goes through a statement, token by token.
type scanner struct {
	rest  string
	ended bool // by a semicolon
	used  map[int]bool
	found Statement
}

// next reads a token or blanks.
func (s *scanner) next() error {
	c := s.rest[0]
	switch {
	case strings.IndexByte(" \t\r\n\f\v", c) >= 0:
		s.rest = s.rest[1:]
		return nil
	case strings.HasPrefix(s.rest, "--"):
		_, s.rest, _ = strings.Cut(s.rest, "\n")
		return nil
	case strings.HasPrefix(s.rest, "/*"):
		return s.comment()
	case c == ';':
		s.ended = true
		s.rest = s.rest[1:]
		return nil
	case s.ended:
		return errors.New("want a single statement, have several: combine them as with a as (insert …) update …, or in a function")
	case c == '\'':
		return s.quoted("'", false)
	case c == '"':
		return s.quoted(`"`, false)
	case c == '$':
		return s.dollar()
	case isNameStart(c):
		return s.word()
	case '0' <= c && c <= '9': // so that 1$2 is no parameter, as for PostgreSQL
		s.rest = strings.TrimLeftFunc(s.rest, func(r rune) bool { return r < 0x80 && isNamePart(byte(r)) && r != '$' })
		return nil
	}
	s.rest = s.rest[1:]
	if s.found.Verb == "" && c != '(' {
		s.found.Verb = string(c)
	}
	return nil
}

// comment reads a comment, which may have others inside.
func (s *scanner) comment() error {
	for depth, i := 0, 0; i+1 < len(s.rest); {
		switch s.rest[i : i+2] {
		case "/*":
			depth++
			i += 2
		case "*/":
			depth--
			i += 2
		default:
			i++
		}
		if depth == 0 {
			s.rest = s.rest[i:]
			return nil
		}
	}
	return errors.New("a comment of the statement has no end")
}

// quoted reads up to the next quote that is not doubled. Backslashes may hide quotes from it.
func (s *scanner) quoted(quote string, backslashes bool) error {
	for i := 1; i < len(s.rest); i++ {
		switch {
		case backslashes && s.rest[i] == '\\':
			i++
		case s.rest[i] != quote[0]:
		case strings.HasPrefix(s.rest[i+1:], quote):
			i++
		default:
			s.noteQuoted(s.rest[1:i])
			s.rest = s.rest[i+1:]
			return nil
		}
	}
	return fmt.Errorf("a %s of the statement has no end", quote)
}

func (s *scanner) noteQuoted(text string) {
	_, after, has := strings.Cut(text, "$")
	s.found.Quoted = s.found.Quoted || has && after != "" && '0' <= after[0] && after[0] <= '9'
}

// dollar reads a parameter, or a text between dollars such as $$a$$ or $x$a$x$.
func (s *scanner) dollar() error {
	if n := digits(s.rest[1:]); n > 0 {
		number, err := strconv.Atoi(s.rest[1 : 1+n])
		if err != nil || number < 1 || number > maxParameters {
			return fmt.Errorf("%s is no parameter: they are numbered from $1", s.rest[:1+n])
		}
		s.used[number] = true
		s.found.Parameters = max(s.found.Parameters, number)
		s.rest = s.rest[1+n:]
		return nil
	}
	end := strings.IndexByte(s.rest[1:], '$') + 2
	if end < 2 || strings.ContainsFunc(s.rest[1:end-1], func(r rune) bool { return r < 0x80 && !isNamePart(byte(r)) }) {
		return errors.New("a $ of the statement is followed by no number")
	}
	tag := s.rest[:end]
	text, rest, has := strings.Cut(s.rest[end:], tag)
	if !has {
		return fmt.Errorf("a %s of the statement has no end", tag)
	}
	s.noteQuoted(text)
	s.rest = rest
	return nil
}

// word reads a name or a keyword, or a text with a letter before its quote.
func (s *scanner) word() error {
	n := 0
	for n < len(s.rest) && isNamePart(s.rest[n]) {
		n++
	}
	word := strings.ToLower(s.rest[:n])
	s.rest = s.rest[n:]
	if s.found.Verb == "" {
		s.found.Verb = word
	}
	if word == "e" && strings.HasPrefix(s.rest, "'") {
		return s.quoted("'", true)
	}
	return nil
}

func digits(text string) int {
	return len(text) - len(strings.TrimLeft(text, "0123456789"))
}

// isNameStart reports whether a name may begin with a byte. Those beyond ASCII are letters to PostgreSQL.
func isNameStart(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= 0x80
}

func isNamePart(c byte) bool { return isNameStart(c) || '0' <= c && c <= '9' || c == '$' }

// Count returns an error unless the statement has so many parameters.
func (s Statement) Count(values int) error {
	if s.Parameters == values {
		return nil
	}
	last, all := "no $1", "1 value"
	if s.Parameters > 0 {
		last = fmt.Sprintf("parameters up to $%d", s.Parameters)
	}
	if values != 1 {
		all = fmt.Sprintf("%d values", values)
	}
	return fmt.Errorf("the statement has %s, and %s", last, all)
}

// Remedy says how to make the parameters of the statement and its values match.
func (s Statement) Remedy() string {
	if s.Quoted {
		return "write $1 without quotes: inside of them it is text"
	}
	return "write a value below parameters: for each of $1, $2 and so on"
}
