package dsl

// The codes of findings about a single file: its bytes, its YAML, and the
// structure of what it says.
const (
	codeTooLarge        Code = "PC0101" // the file exceeds a bound
	codeEncoding        Code = "PC0102" // a character that cannot be read
	codeSyntax          Code = "PC0103" // no YAML
	codeExprTrap        Code = "PC0104" // YAML cuts or changes an expression
	codeSecondDocument  Code = "PC0105"
	codeTooDeep         Code = "PC0106"
	codeTooManyAliases  Code = "PC0107"
	codeSelfAlias       Code = "PC0108"
	codeUnknownTag      Code = "PC0109"
	codeMergeKey        Code = "PC0110"
	codeDuplicateKey    Code = "PC0111"
	codeKey             Code = "PC0112" // a key that is no text
	codeNumber          Code = "PC0113" // a number that data cannot hold
	codeLeadingZero     Code = "PC0114"
	codeEmptyExpr       Code = "PC0115"
	codeNoExpr          Code = "PC0116" // an expression where none is allowed
	codeSecret          Code = "PC0117" // a secret where none is allowed
	codeV1              Code = "PC0118" // the first version of the language
	codeTooManyFindings Code = "PC0119"
	codeUnknownField    Code = "PC0120"
	codeMissing         Code = "PC0121"
	codeKind            Code = "PC0122" // a value of the wrong kind
	codeValue           Code = "PC0123" // a scalar that the field does not allow
	codeUnknownType     Code = "PC0124"
	codeTwoTypes        Code = "PC0125"
)
