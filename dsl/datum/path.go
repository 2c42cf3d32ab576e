package datum

import (
	"slices"
	"strings"

	"procaas/dsl/diag"
)

// Wildcard is the path element for an index that is known only at run time. It overlaps with every name.
const Wildcard = "*"

// A Path is a place in the environment of expressions, from its root: {"shared-state", "order", "id"}. It
// includes everything below it.
type Path []string

// String joins the elements with dots.
func (p Path) String() string { return strings.Join(p, ".") }

// Overlaps reports whether a change at p may change the value at q: one is a prefix of the other. A [Wildcard]
// matches any element.
func (p Path) Overlaps(q Path) bool {
	for i := range min(len(p), len(q)) {
		if p[i] != q[i] && p[i] != Wildcard && q[i] != Wildcard {
			return false
		}
	}
	return true
}

// Equal reports whether both paths have the same elements.
func (p Path) Equal(q Path) bool { return slices.Equal(p, q) }

// A Read is a path that an expression reads, and the position of the read.
type Read struct {
	Path Path
	Span diag.Span

	// Guarded reports whether a null there cannot fail or leave the expression. It is read through ?. or ??, or
	// after a test of the same path in the same expression.
	Guarded bool
}
