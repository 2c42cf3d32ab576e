package syntax

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// The limits of an expression's text. They are checked before parsing, since the parser is recursive and its
// stack must be limited.
const (
	MaxSource = 4 << 10 // bytes
	maxDepth  = 32      // nested brackets
	maxNodes  = 300
)

// A tokenKind is the kind of a token, as far as rewriting needs it.
type tokenKind int

// The kinds of tokens.
const (
	NameToken   tokenKind = iota // including words such as and, if
	numberToken                  // 12, 0x1f, 1_000, 2.5e-3
	StringToken                  // 'a', "a", `a`
	SymbolToken                  // operators and brackets
	itemToken                    // #, #index, #acc
)

// A Token is a token of an expression, with its rune offsets.
type Token struct {
	Kind     tokenKind
	Text     string // as written, with quotes and underscores
	From, To int
	Pair     int // of a bracket, the index of its partner; otherwise -1
}

// A Flaw is an error in a part of an expression's text.
type Flaw struct {
	From, To      int
	Code          diag.Code
	Message, Hint string
}

// Is reports whether the token is one of these words or symbols.
func (t Token) Is(texts ...string) bool {
	return (t.Kind == NameToken || t.Kind == SymbolToken) && slices.Contains(texts, t.Text)
}

// symbols lists the operators, longer ones first. It includes those of other languages, for messages.
var symbols = []string{
	"===", "!==", "**=", "//=", "...",
	"?.", "??", "**", "==", "!=", "<=", ">=", "&&", "||", "..", "//", "::", ":=", "->", "=>", "<>",
	"+=", "-=", "*=", "/=", "%=", "++", "--", "<<", ">>",
	"+", "-", "*", "/", "%", "^", "<", ">", "=", "!", "?", ":", ";", ",", ".", "|", "&", "~", "@",
	"(", ")", "[", "]", "{", "}",
}

// A lexer splits an expression into tokens. It stops at the first flaw.
type lexer struct {
	src    []rune
	ascii  string // the same text, if it is ASCII
	at     int
	tokens []Token
	open   []int // indexes of open brackets
}

// Scan splits the text into tokens. It checks its size, its brackets and their depth.
func Scan(source string) ([]Token, *Flaw) {
	src := []rune(source)
	if len(source) > MaxSource {
		return nil, &Flaw{
			0, len(src), rules.ExprTooLarge,
			"the expression is longer than 4 KiB", "compute parts of it in a set handler before",
		}
	}
	l := &lexer{src: src, tokens: make([]Token, 0, len(src)/4+2)}
	if len(src) == len(source) {
		l.ascii = source
	}
	for l.skipSpace(); l.at < len(src); l.skipSpace() {
		if f := l.next(); f != nil {
			return nil, f
		}
	}
	if len(l.open) > 0 {
		t := l.tokens[l.open[len(l.open)-1]]
		return nil, &Flaw{t.From, t.To, rules.ExprSyntax, "this " + Quoted(t.Text) + " is never closed", ""}
	}
	return l.tokens, nil
}

// skipSpace skips white space and /* comments */.
func (l *lexer) skipSpace() {
	for l.at < len(l.src) {
		switch {
		case unicode.IsSpace(l.src[l.at]):
			l.at++
		case l.has("/*"):
			end := strings.Index(string(l.src[l.at+2:]), "*/")
			if end < 0 {
				return // next reports it
			}
			l.at += 2 + len([]rune(string(l.src[l.at+2:])[:end])) + 2
		default:
			return
		}
	}
}

// has reports whether a text follows.
func (l *lexer) has(text string) bool {
	if l.at+len(text) > len(l.src) {
		return false
	}
	for i := range len(text) { // all symbols are ASCII
		if l.src[l.at+i] != rune(text[i]) {
			return false
		}
	}
	return true
}

// next reads the next token.
func (l *lexer) next() *Flaw {
	r := l.src[l.at]
	switch {
	case r == '\'' || r == '"' || r == '`':
		return l.quote(r)
	case '0' <= r && r <= '9', r == '.' && l.digitAt(l.at+1) && !l.afterOperand():
		return l.number()
	case StartsName(r):
		return l.name()
	case r == '#':
		end := l.at + 1
		for end < len(l.src) && InName(l.src[end]) {
			end++
		}
		l.add(itemToken, end)
		return nil
	}
	return l.symbol()
}

// add adds a token that begins at the current position. Its text shares memory with the source if possible,
// since most expressions are ASCII.
func (l *lexer) add(kind tokenKind, end int) {
	text := ""
	if l.ascii != "" {
		text = l.ascii[l.at:end]
	} else {
		text = string(l.src[l.at:end])
	}
	l.tokens = append(l.tokens, Token{Kind: kind, Text: text, From: l.at, To: end, Pair: -1})
	l.at = end
}

// flaw returns a flaw from the current position to end.
func (l *lexer) flaw(end int, code diag.Code, message, hint string) *Flaw {
	return &Flaw{l.at, min(end, len(l.src)), code, message, hint}
}

func (l *lexer) digitAt(i int) bool {
	return i < len(l.src) && '0' <= l.src[i] && l.src[i] <= '9'
}

// afterOperand reports whether the last token ends an operand, so that a dot selects a member.
func (l *lexer) afterOperand() bool {
	if len(l.tokens) == 0 {
		return false
	}
	t := l.tokens[len(l.tokens)-1]
	return t.Kind != SymbolToken || t.Is(")", "]", "}")
}

// StartsName reports whether a name may begin with r.
func StartsName(r rune) bool { return r == '_' || r == '$' || unicode.IsLetter(r) }

// InName reports whether r may be part of a name. A hyphen between two such characters may be too.
func InName(r rune) bool { return StartsName(r) || unicode.IsDigit(r) }

// name reads a name. A hyphen between two name characters belongs to it, as in
// XPath and CSS; a subtraction needs spaces.
func (l *lexer) name() *Flaw {
	end := l.at
	for end < len(l.src) {
		r := l.src[end]
		if !InName(r) && !(r == '-' && end+1 < len(l.src) && InName(l.src[end+1])) {
			break
		}
		end++
	}
	if end < len(l.src) && (l.src[end] == '"' || l.src[end] == '\'') && end-l.at <= 2 &&
		strings.ContainsAny(strings.ToLower(string(l.src[l.at:end])), "bfru") {
		return l.flaw(end, rules.ExprForeign, "strings have no prefix", "write the string without it, and join parts with +")
	}
	l.add(NameToken, end)
	return nil
}

// number reads a number. It refuses one that is followed by a letter, such as 2fa.
func (l *lexer) number() *Flaw {
	end, digits := l.at, "0123456789_"
	if l.src[end] == '0' && end+1 < len(l.src) {
		switch l.src[end+1] {
		case 'x', 'X':
			end, digits = end+2, "0123456789abcdefABCDEF_"
		case 'o', 'O':
			end, digits = end+2, "01234567_"
		case 'b', 'B':
			end, digits = end+2, "01_"
		}
	}
	run := func() {
		for end < len(l.src) && strings.ContainsRune(digits, l.src[end]) {
			end++
		}
	}
	run()
	if end < len(l.src) && l.src[end] == '.' && l.digitAt(end+1) {
		end++
		run()
	}
	if end < len(l.src) && (l.src[end] == 'e' || l.src[end] == 'E') {
		end++
		if end < len(l.src) && (l.src[end] == '+' || l.src[end] == '-') {
			end++
		}
		run()
	}
	if end < len(l.src) && InName(l.src[end]) {
		for end < len(l.src) && InName(l.src[end]) {
			end++
		}
		return l.flaw(end, rules.ExprSyntax, Quoted(string(l.src[l.at:end]))+" is neither a number nor a name",
			"names begin with a letter; write other keys as ['"+string(l.src[l.at:end])+"']")
	}
	text := strings.ReplaceAll(string(l.src[l.at:end]), "_", "")
	if LeadingZero(text) { // decimal, with a warning
		text = cmp.Or(strings.TrimLeft(text, "0"), "0")
	}
	if _, err := strconv.ParseInt(text, 0, 64); err != nil {
		if _, err := strconv.ParseFloat(text, 64); err != nil || !strings.ContainsAny(text, ".eE") {
			return l.flaw(end, rules.ExprSyntax, Quoted(text)+" is no number of at most 64 bits", "write longer ones as strings")
		}
	}
	l.add(numberToken, end)
	return nil
}

// LeadingZero reports whether a text is an integer that other languages read as octal. Here, as in YAML 1.2, it
// is decimal.
func LeadingZero(text string) bool {
	digits := strings.TrimLeft(text, "+-")
	return len(digits) > 1 && digits[0] == '0' && (digits[1] == '_' || '0' <= digits[1] && digits[1] <= '9')
}

// LeadingZeroHint returns what to write instead.
func LeadingZeroHint(text string) string {
	return "write " + strconv.Quote(text) + " for text, or 0o… for an octal number"
}

// quote reads a string literal. The parser decodes its escapes. Here, a quote after a backslash must not end
// it.
func (l *lexer) quote(q rune) *Flaw {
	for end := l.at + 1; end < len(l.src); end++ {
		switch r := l.src[end]; {
		case r == '\\' && q != '`':
			end++
		case r == '\n' && q != '`':
			return l.flaw(end, rules.ExprSyntax, "the string does not end on its line", `write a line break as \n`)
		case r == q && q == '`' && end+1 < len(l.src) && l.src[end+1] == q:
			end++ // a doubled back quote means one
		case r == q:
			l.add(StringToken, end+1)
			return nil
		}
	}
	return l.flaw(len(l.src), rules.ExprSyntax, "the string never ends", "close it with "+string(q))
}

// symbol reads the longest matching operator or bracket.
func (l *lexer) symbol() *Flaw {
	if l.has("/*") {
		return l.flaw(len(l.src), rules.ExprSyntax, "the comment never ends", "close it with */")
	}
	i := slices.IndexFunc(symbols, l.has)
	if i < 0 {
		return l.strange()
	}
	if f := l.foreign(symbols[i]); f != nil {
		return f
	}
	l.add(SymbolToken, l.at+len(symbols[i]))
	return l.bracket(len(l.tokens) - 1)
}

// strange returns the flaw for a character that no expression has.
func (l *lexer) strange() *Flaw {
	hint := ""
	if strings.ContainsRune("“”„«»‘’", l.src[l.at]) {
		hint = `write strings between straight quotes, ' or "`
	}
	return l.flaw(l.at+1, rules.ExprSyntax, "the character "+Quoted(string(l.src[l.at]))+" means nothing here", hint)
}

// foreign returns the flaw for an operator of another language.
func (l *lexer) foreign(symbol string) *Flaw {
	end := l.at + len(symbol)
	switch symbol {
	case "//":
		return l.flaw(end, rules.ExprSlashes, "// is no operator",
			"write floor(a / b) to divide without remainder, and comments between /* and */")
	case "===", "!==", "<>":
		want := "!="
		if symbol == "===" {
			want = "=="
		}
		return l.flaw(end, rules.ExprForeign, symbol+" is no operator", "write "+want)
	case "++", "--", "+=", "-=", "*=", "/=", "%=", "**=", "//=", ":=":
		return l.flaw(end, rules.ExprForeign, symbol+" is no operator: an expression changes nothing",
			"name a value with let x = …;")
	case "|":
		return l.flaw(end, rules.ExprForeign, "| is no operator", "write or, or call the function on the value: f(x)")
	case "&":
		return l.flaw(end, rules.ExprForeign, "& is no operator", "write and")
	case "^":
		return l.flaw(end, rules.ExprForeign, "^ is no operator", "write ** for a power")
	case "::":
		hint := ""
		if n := len(l.open); n > 0 && l.tokens[l.open[n-1]].Is("[") {
			hint = "a slice has no step: write text[from:to], or filter(list, #index % 2 == 0)"
		}
		return l.flaw(end, rules.ExprForeign, ":: is no operator", hint)
	case "~", "@", "<<", ">>", "...":
		return l.flaw(end, rules.ExprForeign, symbol+" is no operator", "")
	case "=>", "->":
		return l.arrow(symbol)
	}
	return nil
}

// arrow returns the flaw for an arrow, which makes a function or selects a member in other languages.
func (l *lexer) arrow(symbol string) *Flaw {
	end, n := l.at+len(symbol), len(l.tokens)
	if symbol == "->" && n > 0 && l.tokens[n-1].To == l.at && end < len(l.src) && StartsName(l.src[end]) {
		return l.flaw(end, rules.ExprForeign, "-> is no operator", "write a dot before a member")
	}
	hint := "write # for the element: filter(xs, # > 1)"
	if n > 0 && l.tokens[n-1].Kind == NameToken {
		hint = "write # in place of " + l.tokens[n-1].Text + ", without the arrow: filter(xs, # > 1)"
	}
	return l.flaw(end, rules.ExprForeign, "there are no lambda functions", hint)
}

// bracket pairs the bracket at token i and limits the depth.
func (l *lexer) bracket(i int) *Flaw {
	t := &l.tokens[i]
	switch t.Text {
	case "(", "[", "{":
		if len(l.open) == maxDepth {
			return &Flaw{
				t.From, t.To, rules.ExprTooLarge, "brackets are nested more than 32 deep",
				"name parts of the expression with let x = …;",
			}
		}
		l.open = append(l.open, i)
	case ")", "]", "}":
		if len(l.open) == 0 {
			return &Flaw{t.From, t.To, rules.ExprSyntax, "this " + Quoted(t.Text) + " closes nothing", ""}
		}
		first := l.open[len(l.open)-1]
		opener := &l.tokens[first]
		if want := map[string]string{"(": ")", "[": "]", "{": "}"}[opener.Text]; want != t.Text {
			return &Flaw{
				t.From, t.To, rules.ExprSyntax,
				"want " + Quoted(want) + " to close the " + Quoted(opener.Text) + ", have " + Quoted(t.Text), "",
			}
		}
		l.open = l.open[:len(l.open)-1]
		t.Pair, opener.Pair = first, i
	}
	return nil
}

// Quoted quotes a part of an expression for a message.
func Quoted(text string) string { return `"` + text + `"` }
