package dsl

// newExpr makes an expression of a plain text, as if it began a file.
func newExpr(source string) *Expr {
	e := &Expr{Source: source, at: []Pos{{Line: 1, Column: 1}}}
	at := e.at[0]
	for _, r := range source {
		if at.Column++; r == '\n' {
			at = Pos{Line: at.Line + 1, Column: 1}
		}
		e.at = append(e.at, at)
	}
	e.Span = Span{File: "expr", Start: e.at[0], End: at}
	return e
}
