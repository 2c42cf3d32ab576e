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
	for _, child := range childrenOf(n) {
		w.visit(child, depth)
	}
}

// childrenOf lists the parts of a node.
func childrenOf(n ast.Node) []ast.Node {
	switch x := n.(type) {
	case *ast.UnaryNode:
		return []ast.Node{x.Node}
	case *ast.BinaryNode:
		return []ast.Node{x.Left, x.Right}
	case *ast.ConditionalNode:
		return []ast.Node{x.Cond, x.Exp1, x.Exp2}
	case *ast.ChainNode:
		return []ast.Node{x.Node}
	case *ast.MemberNode:
		return []ast.Node{x.Node} // the name is not a part
	case *ast.SliceNode:
		return []ast.Node{x.Node}
	case *ast.CallNode:
		return x.Arguments
	case *ast.PredicateNode:
		return []ast.Node{x.Node}
	case *ast.VariableDeclaratorNode:
		return []ast.Node{x.Value, x.Expr}
	case *ast.ArrayNode:
		return x.Nodes
	case *ast.MapNode:
		return x.Pairs
	case *ast.PairNode:
		return []ast.Node{x.Value}
	}
	return nil
}
