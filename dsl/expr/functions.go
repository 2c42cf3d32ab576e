package expr

import (
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/library"
	"procaas/dsl/ops"
	"procaas/dsl/rules"
	"procaas/dsl/typing"
)

// synonyms are names of other languages for our functions and operators.
var synonyms = map[string]string{
	"str": "string", "toString": "string", "String": "string", "size": "len", "length": "len",
	"toInt": "int", "number": "float", "sorted": "sort", "reversed": "reverse", "unique": "uniq",
	"set": "uniq", "toLower": "lower", "toUpper": "upper", "strip": "trim", "json": "toJSON",
	"parseJSON": "fromJSON", "exists": "value != null", "every": "all", "some": "any", "fold": "reduce",
	"print": "what is to be seen into the shared state", "isinstance": "the type into a schema",
	"defined": "value != null", "has": "key in mapping", "hasattr": "key in mapping", "getattr": "get",
	"coalesce": "value ?? default", "ifnull": "value ?? default", "nvl": "value ?? default", "default": "value ?? default",
	"startswith": "text startsWith part", "endswith": "text endsWith part", "contains": "text contains part",
	"startsWith": "text startsWith part", "endsWith": "text endsWith part", "matches": "text matches pattern",
	"regex": "text matches pattern", "typeof": "the type into a schema",
	"iif": "VALUE if CONDITION else OTHER", "parseInt": "int", "Number": "float", "substr": "text[from:to]",
	"isset": "value != null", "isnull": "value == null", "dict": "{name: value}", "list": "[value, …]", "tuple": "[value, …]",
	"enumerate": "map(list, [#index, #])", "zip": "map(list, [#, other[#index]])", "format": "'text ' + string(value)",
	"head": "first", "avg": "mean", "range": "from..to", "pow": "base ** exponent", "substring": "text[from:to]",
}

// refused are functions of expr-lang that are not repeatable, so a run cannot use them.
var refused = map[string]string{
	"now": "read event.time", "date": "times are strings; compare them as such",
	"timezone": "times are strings in UTC", "duration": "write the duration where it is needed, such as 300ms",
	"random": "derive it from event.id", "uuid": "use run.id or event.id",
}

// call compiles a call of a function other than a loop.
func (b *builder) call(x *ast.CallNode) part {
	if m, ok := x.Callee.(*ast.MemberNode); ok {
		return b.method(m)
	}
	name := b.Name(x)
	fn := library.Named(name)
	if fn == nil {
		return b.noFunction(x, name)
	}
	args, ok := b.arguments(x, fn)
	if !ok {
		return broken
	}
	fixed := !slices.ContainsFunc(args, func(p part) bool { return !p.fixed })
	known := make([]*typing.Outline, len(args))
	for i, p := range args {
		known[i] = p.known()
	}
	made := part{shape: fn.Result, outline: resultOf(fn, known), eval: b.guard(x, func(f *frame) (any, error) {
		values := make([]any, len(args))
		for i, p := range args {
			v, err := p.eval(f)
			if err != nil {
				return nil, err
			}
			// Values whose type was unknown during compilation are checked now.
			if want := fn.Arg(i); datum.ShapeOfValue(v)&want == 0 {
				return nil, ops.Needs(name, want, v)
			}
			values[i] = v
		}
		if err := f.Step(1); err != nil {
			return nil, err
		}
		return fn.Call(&f.Meter, values)
	})}
	return folded(made, fixed)
}

// arguments compiles the arguments of a call, and checks their number and types.
func (b *builder) arguments(x *ast.CallNode, fn *library.Definition) ([]part, bool) {
	if message := fn.WrongCount(len(x.Arguments)); message != "" {
		b.fail(x, rules.ExprArguments, "write "+fn.Signature, "%s", message)
		return nil, false
	}
	args := make([]part, len(x.Arguments))
	for i, a := range x.Arguments {
		args[i] = b.want(a, b.build(a), fn.Arg(i), fn.Name)
		if i == 0 {
			b.checkElements(a, fn.Name, args[i])
		}
	}
	if fn.Name == "min" || fn.Name == "max" {
		for _, other := range args[1:] {
			b.checkPairs(x, fn.Name+" needs numbers or strings only", mixable, args[0], other, func(datum.Shape, datum.Shape) string {
				return "make numbers of all: int(x) or float(x)"
			})
		}
	}
	return args, true
}

// mixable returns no type for a number and a text, which have no order.
func mixable(l, r datum.Shape) datum.Shape {
	if (l|r)&(datum.NumberShape|datum.StringShape) == 0 {
		return datum.AnyShape
	}
	return ordered(l, r)
}

// method reports a method call: values have no methods. Its hints translate common methods of JavaScript,
// Python and templates.
func (b *builder) method(m *ast.MemberNode) part {
	name, _ := b.Literal(m.Property)
	hint := ""
	if fn := library.Named(name); fn != nil {
		hint = "write " + fn.Signature
	} else if near, ok := synonyms[name]; ok && library.Named(near) != nil {
		hint = "write " + library.Named(near).Signature
	}
	switch strings.ToLower(name) {
	case "items", "entries":
		hint = "write toPairs(map), or keys(map)"
	case "format":
		hint = "join the parts: 'order ' + string(number)"
	case "now", "today", "utcnow":
		hint = "read event.time, or run.started: an expression knows no other time"
	case "append", "extend", "add", "push", "concat":
		hint = "values do not change; write concat(list, [value]) for a new one"
	case "update", "setdefault", "pop", "remove", "insert", "clear":
		hint = "values do not change; make a new one by merge, filter or concat"
	case "has", "haskey", "has_key", "hasownproperty":
		hint = "write key in mapping"
	case "tostring", "str":
		hint = "write string(value)"
	case "substring", "substr", "slice":
		hint = "write text[from:to]"
	case "isempty":
		hint = "write len(value) == 0"
	case "isdigit", "isnumeric", "isalpha", "match":
		hint = "write text matches '^[0-9]+$'"
	case "startswith", "endswith", "contains", "matches":
		hint = "write it between its operands: text startsWith part"
	}
	return b.fail(m, rules.ExprMethod, hint, "values have no methods such as %s()", name)
}

// noFunction reports an unknown function.
func (b *reports) noFunction(x *ast.CallNode, name string) part {
	if hint, ok := refused[name]; ok {
		return b.fail(x, rules.ExprRefused, hint, "%s cannot be called: a repeated run must compute the same again", name)
	}
	if hint, ok := synonyms[name]; ok {
		if fn := library.Named(hint); fn != nil {
			hint = fn.Signature
		}
		return b.fail(x, rules.ExprUnknownFunction, "write "+hint, "there is no function %s", name)
	}
	names := make([]string, 0, len(library.All))
	for _, f := range library.All {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	hint := ""
	switch near, second := diag.SuggestTwo(name, names); {
	case second != "":
		hint = "did you mean " + library.Named(near).Signature + " or " + library.Named(second).Signature + "?"
	case near != "":
		hint = "did you mean " + library.Named(near).Signature + "?"
	}
	return b.fail(x, rules.ExprUnknownFunction, hint, "there is no function %s", name)
}
