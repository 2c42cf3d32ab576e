package source

import (
	"fmt"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"procaas/dsl/diag"
	"procaas/dsl/syntax"
)

// A slip is a common mistake behind a syntax error: its position, which may be on another line than the
// parser's, what is wrong, and what to do.
type slip struct {
	at            diag.Pos
	message, hint string
}

// gluedKey is an entry without a space after its colon, which is text for YAML.
var gluedKey = regexp.MustCompile(`^((?:\s|- )*)([A-Za-z][\w-]*):([^\s/:][^:]*|"[^"]*"|'[^']*')$`)

// slipOf looks for a common mistake near the position where the parser failed.
func (t lines) slipOf(f failure) (slip, bool) {
	if found, ok := t.ellipsis(f.at.Line); ok {
		return found, true
	}
	if found, ok := t.listWithoutKey(f.at.Line); ok {
		return found, true
	}
	switch {
	case strings.Contains(f.problem, "mapping values are not allowed"), strings.Contains(f.problem, "could not find expected ':'"):
		return t.gluedColon(f.at.Line)
	case strings.Contains(f.problem, "did not find expected key"), strings.Contains(f.problem, "did not find expected '-'"):
		if found, ok := t.behindQuote(f.at); ok {
			return found, true
		}
		return t.misaligned(f)
	case strings.Contains(f.problem, "did not find expected ',' or"):
		line, i := t[f.at.Line-1], f.at.Column-1
		if i > 0 && i < len(line) && line[i] == '{' && line[i-1] == '$' {
			return slip{diag.Pos{Line: f.at.Line, Column: i}, "nothing replaces ${…}", "write !$ " + joined(line, i) +
				", or put it in quotes if it is text"}, true
		}
	}
	return slip{}, false
}

// joined returns an expression for a value with ${…} in a flow collection. i is the position of its brace.
func joined(line []rune, i int) string {
	from := i - 1
	for from > 0 && !strings.ContainsRune("{[,", line[from-1]) && !(line[from-1] == ' ' && strings.ContainsRune(":,", line[max(0, from-2)])) {
		from--
	}
	inner, behind, _ := strings.Cut(string(line[i+1:]), "}")
	if end := strings.IndexAny(behind, ",]}"); end >= 0 {
		behind = behind[:end]
	}
	front, behind := strings.TrimSpace(string(line[from:i-1])), strings.TrimSpace(behind)
	if strings.ContainsAny(front+behind, `'"\$`) || strings.Contains(inner, `"`) || front+behind == "" {
		return inner // or it is more than one value
	}
	expr := "string(" + inner + ")"
	if front != "" {
		expr = "'" + front + "' + " + expr
	}
	if behind != "" {
		expr += " + '" + behind + "'"
	}
	return syntax.InDoubleQuotes(expr)
}

// ellipsis finds the dots of a copied listing.
func (t lines) ellipsis(line int) (slip, bool) {
	for l := line; l > 0 && l >= line-1; l-- {
		if text := strings.TrimSpace(string(t[l-1])); text == "..." || text == "…" {
			return slip{diag.Pos{Line: l, Column: IndentOf(t[l-1]) + 1}, text + " is not a key",
				"delete the line: a listing leaves something out here"}, true
		}
	}
	return slip{}, false
}

// lists maps the key of a list to the key of the list within its entries.
var lists = map[string]string{"pipelines": "stages", "stages": "handlers", "choose": "handlers"}

// keyed matches a line that begins an entry, or another key of it.
var keyed = regexp.MustCompile(`^( *(?:- +)*)([a-z][a-z-]*):(?: |$)`)

// entryWithoutKey reports whether a line is a list entry without its key. Then an expression on a line above is not the
// reason for the syntax error.
func (t lines) entryWithoutKey(above, line int) bool {
	_, ok := t.listWithoutKey(line)
	return ok && above < line
}

// listWithoutKey finds an entry of a list right below another entry, without the key of that list.
func (t lines) listWithoutKey(line int) (slip, bool) {
	entry, ok := strings.CutPrefix(strings.TrimLeft(string(t[line-1]), " "), "- ")
	if !ok || !keyed.MatchString(entry) {
		return slip{}, false
	}
	column, begun := 0, false // of the keys of the entry above; whether its hyphen was found
	for l := line - 1; l > 0; l-- {
		m := keyed.FindStringSubmatch(string(t[l-1]))
		if m == nil {
			continue
		}
		hyphen := IndentOf(t[l-1])
		switch {
		case column == 0 && len(m[1]) > IndentOf(t[line-1]):
			return slip{}, false
		case column == 0 && strings.TrimSpace(string(t[l-1])) == m[2]+":":
			return slip{}, false // the list belongs to this key
		case column == 0:
			column, begun = len(m[1]), hyphen < len(m[1])
		case !begun && hyphen < column:
			begun = len(m[1]) == column
		case begun && len(m[1]) == hyphen && hyphen < column:
			missing := lists[m[2]]
			return slip{
				diag.Pos{Line: line, Column: IndentOf(t[line-1]) + 1},
				"this list has no key",
				fmt.Sprintf("put %s: on a line above it, indented by %s", missing, spaces(column)),
			}, missing != ""
		}
	}
	return slip{}, false
}

// gluedColon finds key:value on the line or the one above.
func (t lines) gluedColon(line int) (slip, bool) {
	for l := line; l > 0 && l >= line-1; l-- {
		text := string(t[l-1])
		m := gluedKey.FindStringSubmatchIndex(text)
		if m == nil {
			continue
		}
		key := text[m[4]:m[5]]
		return slip{
			diag.Pos{Line: l, Column: len([]rune(text[:m[4]])) + 1},
			"the colon of " + key + ": has no blank behind it, so this is text",
			fmt.Sprintf("write %s: %s", key, text[m[6]:m[7]]),
		}, true
	}
	return slip{}, false
}

// behindQuote finds text after a closing quote, often because of an apostrophe within single quotes. The parser
// reports the position where that text begins.
func (t lines) behindQuote(p diag.Pos) (slip, bool) {
	line := t[p.Line-1]
	i := min(p.Column-1, len(line))
	for i > 0 && IsBlank(line[i-1]) {
		i--
	}
	if i == 0 || p.Column > len(line) || line[i-1] != '\'' && line[i-1] != '"' {
		return slip{}, false
	}
	hint := `put the whole in single quotes, or write \" for a quote inside`
	if line[i-1] == '\'' {
		hint = "write '' for a quote inside, or put the whole in double quotes"
	}
	return slip{p, "the value has ended with the quote before this", hint}, true
}

// misaligned finds a line whose indentation matches no line above, or that is below the hyphen of an entry
// instead of its text.
func (t lines) misaligned(f failure) (slip, bool) {
	line := t[f.at.Line-1]
	own := IndentOf(line)
	if own == len(line) || f.at.Column != own+1 {
		return slip{}, false
	}
	deeper := -1 // the next level to the right of the line
	for l := f.at.Line - 1; l > 0; l-- {
		above := t[l-1]
		n := IndentOf(above)
		if n == len(above) || above[n] == '#' {
			continue
		}
		key := n // for an entry of a list, the column of its text
		for key+1 < len(above) && above[key] == '-' && above[key+1] == ' ' {
			key += 2
		}
		switch {
		case n == own && key > n && strings.Contains(f.problem, "expected '-'") && strings.ContainsRune(string(above), ':'):
			return slip{f.at, f.wording(t), fmt.Sprintf("begin it with a hyphen, or indent it by %s to belong to the entry of line %d",
				spaces(key), l)}, true
		case n == own:
			return slip{}, false
		case n > own:
			deeper = n
			continue
		case key > own:
			deeper = key
		}
		if deeper < 0 {
			return slip{}, false
		}
		return slip{
			f.at, fmt.Sprintf("this line is indented by %s, unlike every line that it could belong to", spaces(own)),
			fmt.Sprintf("indent it by %d or %s", deeper, spaces(n)),
		}, true
	}
	return slip{}, false
}

// IndentOf counts the spaces before the text of a line.
func IndentOf(line []rune) int {
	n := 0
	for n < len(line) && line[n] == ' ' {
		n++
	}
	return n
}

func spaces(n int) string {
	if n == 1 {
		return "1 space"
	}
	return fmt.Sprintf("%d spaces", n)
}

// misread returns how YAML reads the beginning of an expression, or "".
func misread(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	switch text[0] {
	case '\'', '"':
		if end := strings.IndexByte(text[1:], text[0]); end >= 0 {
			return "it takes " + text[:end+2] + " for the whole value"
		}
	case '[':
		return "it takes the bracket for a list that is the whole value"
	case '{':
		return "it takes the brace for a mapping that is the whole value"
	case '!':
		return "it takes ! for the beginning of a second tag"
	case '*', '&':
		return "it takes " + text[:1] + " for an alias or anchor"
	}
	if strings.Contains(text, " ? ") && strings.Contains(text, ": ") {
		return "it takes the colon for that of a key"
	}
	return ""
}

// braces returns the meaning of a mapping instead of a key: {{ x }} as in templates of other tools.
func (t lines) braces(n *yaml.Node) string {
	line := t[n.Line-1]
	from := n.Column - 1
	if from < 1 || from >= len(line) || line[from] != '{' || line[from-1] != '{' {
		return ""
	}
	inner, _, ok := strings.Cut(string(line[from+1:]), "}}")
	if !ok || strings.TrimSpace(inner) == "" {
		return ""
	}
	return "nothing replaces {{ … }}; write !$ " + strings.TrimSpace(inner)
}
