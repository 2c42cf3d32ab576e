package dsl

// The codes of findings in expressions.
const (
	CodeSyntax          Code = "PC0300" // the text is no expression
	CodeTooLarge        Code = "PC0301" // too long, too deep or too many parts
	CodeForeign         Code = "PC0302" // something that only other languages have
	CodeAssign          Code = "PC0303" // = instead of ==
	CodeSlashes         Code = "PC0304" // a Python division or a comment
	CodeChain           Code = "PC0305" // a < b < c
	CodeUnknownName     Code = "PC0310" // nothing has the name
	CodeHyphen          Code = "PC0311" // a-b where a - b is meant
	CodeUndeclared      Code = "PC0312" // the shared state has no such name
	CodeUnknownSource   Code = "PC0313" // no handler has the name
	CodeLateSource      Code = "PC0314" // the handler has not run yet
	CodeUnknownConfig   Code = "PC0315" // no config has the name
	CodeUnknownMember   Code = "PC0316" // event, flow, run or a source has no such member
	CodeRootHere        Code = "PC0317" // the root is not known at this place
	CodeOperand         Code = "PC0320" // a value of the wrong type
	CodeUnfit           Code = "PC0321" // the result cannot stand here
	CodeNeverEqual      Code = "PC0322" // a comparison that always has the same result
	CodeDuplicateKey    Code = "PC0323" // a key given twice
	CodeUnknownFunction Code = "PC0330" // there is no such function
	CodeArguments       Code = "PC0331" // too few or too many arguments
	CodeRefused         Code = "PC0332" // something that would differ when a run is repeated
	CodeMethod          Code = "PC0333" // the call of a method
	CodePattern         Code = "PC0334" // a pattern that cannot be used
)
