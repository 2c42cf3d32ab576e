package library

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/ops"
)

// A Function documents a function of the expression language.
type Function struct {
	Name      string // in a call
	Signature string // such as upper(text); ? marks optional arguments
	Doc       string // one sentence
}

// Functions lists the functions that expressions may call, sorted by name.
func Functions() []Function {
	var out []Function
	for _, f := range All {
		out = append(out, f.Function)
	}
	slices.SortFunc(out, func(a, b Function) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// A Definition is a function with the types of its arguments. The last ones may be optional.
type Definition struct {
	Function
	Args     []datum.Shape
	optional int
	variadic bool // the last argument may be repeated
	Result   datum.Shape
	Call     func(m *ops.Meter, args []any) (any, error) // nil for a loop
}

// Named returns a function, or nil.
func Named(name string) *Definition {
	i := slices.IndexFunc(All, func(f Definition) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return &All[i]
}

// Arg returns the types of argument i. The last argument may be repeated.
func (fn *Definition) Arg(i int) datum.Shape { return fn.Args[min(i, len(fn.Args)-1)] }

// WrongCount returns what is wrong with a call with n arguments, or "".
func (fn *Definition) WrongCount(n int) string {
	if most := len(fn.Args); n >= most-fn.optional && (n <= most || fn.variadic) {
		return ""
	}
	return fmt.Sprintf("%s takes %s, have %d", fn.Name, fn.count(), n)
}

// count describes how many arguments the function takes.
func (fn *Definition) count() string {
	least, most := len(fn.Args)-fn.optional, len(fn.Args)
	switch {
	case fn.variadic:
		return fmt.Sprintf("at least %s", arguments(least))
	case least == most:
		return arguments(most)
	}
	return fmt.Sprintf("%d or %s", least, arguments(most))
}

// arguments returns n with its noun.
func arguments(n int) string {
	if n == 1 {
		return "1 argument"
	}
	return fmt.Sprintf("%d arguments", n)
}
