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
	Name      string // as it is called
	Signature string // such as upper(text); ? marks arguments that may be left out
	Doc       string // one sentence
}

// Functions lists the functions that expressions may call, by name.
func Functions() []Function {
	var out []Function
	for _, f := range All {
		out = append(out, f.Function)
	}
	slices.SortFunc(out, func(a, b Function) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// A Definition is one that expressions may call. Each argument must have one of
// the shapes of its place. The last optional arguments may be left out.
type Definition struct {
	Function
	Args     []datum.Shape
	optional int
	variadic bool // the last argument may be repeated
	Result   datum.Shape
	Call     func(m *ops.Meter, args []any) (any, error) // nil for a loop
}

// Named finds a function; nil when there is none.
func Named(name string) *Definition {
	i := slices.IndexFunc(All, func(f Definition) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return &All[i]
}

// Arg returns the shape of argument i; the last one may be repeated.
func (fn *Definition) Arg(i int) datum.Shape { return fn.Args[min(i, len(fn.Args)-1)] }

// WrongCount says what is wrong with a call with n arguments; empty when
// nothing is.
func (fn *Definition) WrongCount(n int) string {
	if most := len(fn.Args); n >= most-fn.optional && (n <= most || fn.variadic) {
		return ""
	}
	return fmt.Sprintf("%s takes %s, have %d", fn.Name, fn.count(), n)
}

// count says how many arguments the function takes.
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

// arguments counts them for people.
func arguments(n int) string {
	if n == 1 {
		return "1 argument"
	}
	return fmt.Sprintf("%d arguments", n)
}
