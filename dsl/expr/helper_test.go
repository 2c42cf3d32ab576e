package expr

// newExpr makes an expression of a plain text, as if it began a file.
func newExpr(source string) *Expr { return Bare("expr", source) }
