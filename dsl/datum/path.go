package datum

import (
	"slices"
	"strings"

	"procaas/dsl/diag"
)

// Wildcard is the path element that stands for an index known only at run
// time: it overlaps with every name.
const Wildcard = "*"

// A Path names a place in the environment of expressions, from its root:
// {"shared-state", "order", "id"}. A path covers all that lies below it.
type Path []string

// String joins the elements with dots.
func (p Path) String() string { return strings.Join(p, ".") }

// Overlaps reports whether a change of what p names may change what q names:
// one of them is a prefix of the other, a [Wildcard] matching any element.
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

// A Read is a path that an expression reads, with the place where it does.
type Read struct {
	Path Path
	Span diag.Span

	// Guarded is true when a null there cannot fail the expression or
	// escape from it: it is read through ?. or ??, or behind a test of the
	// same path in the same expression.
	Guarded bool
}
