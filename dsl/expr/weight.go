package expr

import (
	"fmt"

	"github.com/expr-lang/expr/ast"
)

// The limits beyond which an expression is too complex for a pipeline.
const (
	manyParts   = 100
	manyChoices = 5
	manyLoops   = 3 // nested
)

// TooMuch returns what is too much in an expression, or "".
func (w weigher) TooMuch() string {
	switch {
	case w.loops >= manyLoops:
		return fmt.Sprintf("%d loops inside one another", w.loops)
	case w.choices > manyChoices:
		return fmt.Sprintf("%d choices", w.choices)
	case w.parts > manyParts:
		return fmt.Sprintf("%d parts", w.parts)
	}
	return ""
}

// A weigher measures the complexity of an expression.
type weigher struct{ parts, choices, loops int }

// visit counts a node inside depth loops, and everything below it.
func (w *weigher) visit(n ast.Node, depth int) {
	w.parts++
	switch x := n.(type) {
	case *ast.ConditionalNode:
		w.choices++
	case *ast.BuiltinNode:
		depth++
		w.loops = max(w.loops, depth)
		for _, a := range x.Arguments {
			w.visit(a, depth)
		}
		return
	}
	eachChild(n, func(child ast.Node) { w.visit(child, depth) })
}

// eachChild visits the parts of a node.
func eachChild(n ast.Node, visit func(ast.Node)) {
	all := func(nodes []ast.Node) {
		for _, child := range nodes {
			visit(child)
		}
	}
	switch x := n.(type) {
	case *ast.UnaryNode:
		visit(x.Node)
	case *ast.BinaryNode:
		visit(x.Left)
		visit(x.Right)
	case *ast.ConditionalNode:
		visit(x.Cond)
		visit(x.Exp1)
		visit(x.Exp2)
	case *ast.ChainNode:
		visit(x.Node)
	case *ast.MemberNode:
		visit(x.Node) // the name is not a part
	case *ast.SliceNode:
		visit(x.Node)
	case *ast.CallNode:
		all(x.Arguments)
	case *ast.PredicateNode:
		visit(x.Node)
	case *ast.VariableDeclaratorNode:
		visit(x.Value)
		visit(x.Expr)
	case *ast.ArrayNode:
		all(x.Nodes)
	case *ast.MapNode:
		all(x.Pairs)
	case *ast.PairNode:
		visit(x.Value)
	}
}
