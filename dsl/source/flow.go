package source

import (
	"strings"
	"unicode/utf8"

	"procaas/dsl/diag"
	"procaas/dsl/syntax"
)

// InBrackets reports whether a position is inside a flow list or mapping, where blocks are not allowed. It
// reads the text, since it is also used for invalid files. Brackets in quotes, comments, blocks and plain
// expressions do not count.
func (s *Source) InBrackets(p diag.Pos) bool {
	depth, block := 0, -1
	var quote rune
	for l := 1; l <= p.Line && l <= len(s.Lines); l++ {
		line := s.Lines[l-1]
		if indent := IndentOf(line); block >= 0 && quote == 0 && depth == 0 {
			if indent == len(line) || indent > block {
				continue // the content of a block, or further lines of an expression
			}
			block = -1
		}
		end := len(line)
		if l == p.Line {
			end = min(end, p.Column-1)
		}
		start := true // at the start of a value; a later quote is text
		for i := 0; i < end; i++ {
			switch r := line[i]; {
			case quote != 0:
				if r == '\\' && quote == '"' {
					i++
				} else if r == quote {
					quote = 0
				}
			case r == '#' && (i == 0 || IsBlank(line[i-1])):
				end = i
			case (r == '\'' || r == '"') && start:
				quote, start = r, false
			case (r == '[' || r == '{') && (start || depth > 0):
				depth, start = depth+1, true
			case (r == ']' || r == '}') && depth > 0:
				depth--
				start = false
			case r == ',' && depth > 0, r == ':' && (i+1 >= len(line) || IsBlank(line[i+1])), r == '-' && start:
				start = true
			case (r == '|' || r == '>') && start && depth == 0:
				block, end = EntryIndent(string(line)), i
			case r == '!' && start && depth == 0 && strings.HasPrefix(string(line[i:]), "!$"):
				block, end = EntryIndent(string(line)), i // an expression has no YAML structure
			case IsBlank(r), r == '!', r == '&':
				// A tag or an anchor precedes a value.
				if r != ' ' && r != '\t' {
					for i+1 < end && !IsBlank(line[i+1]) {
						i++
					}
				}
			default:
				start = false
			}
		}
	}
	return depth > 0
}

// TagBefore finds the tag of the expression to which a finding belongs: the last one that begins before the
// finding ends.
func TagBefore(line string, column int) (from, to int, ok bool) {
	for _, m := range ExprTag.FindAllStringSubmatchIndex(line, -1) {
		if ok && utf8.RuneCountInString(line[:m[2]]) >= column {
			break
		}
		from, to, ok = m[2], m[3], true
	}
	return from, to, ok
}

// trapHint returns how to write an expression that YAML cannot read.
func (s *Source) trapHint(p diag.Pos) string {
	if !s.InBrackets(p) {
		return blockHint
	}
	line := string(s.Lines[p.Line-1])
	if from, to, ok := TagBefore(line, p.Column); ok {
		if text, _, ok := FlowExpr(line[to:]); ok && from < to {
			return "put the expression in quotes: !$ " + syntax.InQuotes(text)
		}
	}
	return "put the expression in quotes behind !$, or write the mapping or list without brackets, each entry on a line of its own"
}

// FlowExpr returns the expression after its tag in a flow list or mapping. It ends at the first comma or
// bracket that does not belong to it. ok is false if the text is not an expression.
func FlowExpr(text string) (expr string, length int, ok bool) {
	end := flowEnd(text)
	expr = strings.TrimSpace(text[:end])
	if _, flaw := syntax.Parse(expr); flaw != nil {
		return "", 0, false
	}
	return expr, len(strings.TrimRight(text[:end], " \t")), true
}

// flowEnd returns where an expression in a flow list or mapping ends.
func flowEnd(text string) int {
	depth := 0
	var quote byte
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0:
			if c == '\\' && quote != '`' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"' || c == '`':
			quote = c
		case strings.IndexByte("([{", c) >= 0:
			depth++
		case depth > 0 && strings.IndexByte(")]}", c) >= 0:
			depth--
		case depth == 0 && (c == ',' || c == ']' || c == '}' || c == '#' && i > 0 && text[i-1] == ' '):
			return i
		}
	}
	return len(text)
}

// EntryIndent returns the column of a line's key.
func EntryIndent(line string) int { return len(line) - len(strings.TrimLeft(line, " -")) }
