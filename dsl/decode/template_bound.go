package decode

import (
	"fmt"

	"procaas/dsl/expr"
	"procaas/dsl/source"
	"procaas/dsl/syntax"
)

// This file bounds what templates expand to. A use costs its author a few bytes, and may create a large handler. So
// all uses are measured before the first one is expanded, and no text is built for those that exceed a limit.

// Limits of what the uses of templates create in all files together. Those of one file are the limits of a file.
const (
	maxMadeValues = 5 * source.MaxValues
	maxMadeText   = 5 * source.MaxExpandedBytes
)

// A made is what uses of templates create.
type made struct {
	values int
	text   int // bytes of expressions
}

func (m made) plus(n made) made { return made{m.values + n.values, m.text + n.text} }

// A mouldSize is what a use of a template creates, apart from its arguments.
type mouldSize struct {
	values int
	exprs  []mouldExpr
}

// A mouldExpr is an expression of a template with the parameters that it reads.
type mouldExpr struct {
	*expr.Expr
	reads []param
}

// measured returns the size of a template. It looks at the template once.
func (m *mould) measured() *mouldSize {
	if m.size != nil {
		return m.size
	}
	m.size = &mouldSize{}
	m.handler.Walk(func(v *expr.Value) {
		m.size.values++
		if v.Kind == expr.ValueExpr {
			m.size.exprs = append(m.size.exprs, mouldExpr{v.Computed, paramsIn(v.Computed)})
		}
	})
	return m.size
}

// boundUses measures all uses of templates, in the order of the files, and returns those that exceed a limit, with
// what is exceeded. It is empty for those that follow the first one of a file, so that each file has one finding.
// Its time grows with the files and with what they may expand to, not with what they would expand to.
func boundUses(given []*Reading, moulds map[string]*mould) map[*expr.Value]string {
	refused := make(map[*expr.Value]string)
	if len(moulds) == 0 {
		return refused
	}
	var all made
	for _, r := range given {
		if r.Foreign {
			continue
		}
		var file made
		full := false
		r.Root.Walk(func(v *expr.Value) {
			use := v.Get("use")
			name, ok := use.Get("template").Text()
			m := moulds[name]
			if !ok || m == nil {
				return
			}
			if full {
				refused[v] = ""
				return
			}
			size, why := m.use(use, file, all)
			if why != "" {
				full = true
				refused[v] = why
				return
			}
			file, all = file.plus(size), all.plus(size)
		})
	}
	return refused
}

// use measures one use, and says which limit it exceeds. file and all are what earlier uses create.
func (m *mould) use(use *expr.Value, file, all made) (made, string) {
	size := made{values: m.measured().values}
	if why := exceeded(file.plus(size), all.plus(size)); why != "" {
		return made{}, why // before looking at the expressions, whose number is bounded by this
	}
	given := make(map[string]*expr.Value)
	for i, k := range m.parameters.Keys() {
		value := use.Get("with").Get(k.Name)
		if value == nil {
			value = m.parameters.Elems[i].Get("default")
		}
		given[k.Name] = value
	}
	whole := make(map[string]made) // sizes of arguments that become values
	for _, e := range m.size.exprs {
		switch name := wholeParam(e); {
		case name == "":
			if text := inlinedSize(e.Expr, e.reads, given); text <= syntax.MaxSource { // others are refused, and not built
				size.text += text
			}
		default:
			if _, known := whole[name]; !known {
				whole[name] = sizeOf(given[name])
			}
			size = size.plus(whole[name])
		}
		if why := exceeded(file.plus(size), all.plus(size)); why != "" {
			return made{}, why
		}
	}
	return size, ""
}

// wholeParam returns the parameter that is the whole expression, or "".
func wholeParam(e mouldExpr) string {
	if len(e.reads) == 1 && e.reads[0].from == 0 && e.reads[0].to == len([]rune(e.Source)) {
		return e.reads[0].name
	}
	return ""
}

// exceeded returns the limit that is exceeded, or "".
func exceeded(file, all made) string {
	switch {
	case file.values > source.MaxValues:
		return fmt.Sprintf("more than %d values", source.MaxValues)
	case file.text > source.MaxExpandedBytes:
		return fmt.Sprintf("more than %d MiB of expressions", source.MaxExpandedBytes>>20)
	case all.values > maxMadeValues:
		return fmt.Sprintf("more than %d values in all files", maxMadeValues)
	case all.text > maxMadeText:
		return fmt.Sprintf("more than %d MiB of expressions in all files", maxMadeText>>20)
	}
	return ""
}

// sizeOf returns the size of a copy of an argument.
func sizeOf(v *expr.Value) made {
	var size made
	v.Walk(func(v *expr.Value) {
		size.values++
		if v.Kind == expr.ValueExpr {
			size.text += len(v.Computed.Source)
		}
	})
	return size
}

// inlinedSize returns the bytes of an expression with its parameters inserted. It may return less if they are more
// than [syntax.MaxSource].
func inlinedSize(e *expr.Expr, reads []param, given map[string]*expr.Value) int {
	size := len(e.Source)
	sizes := make(map[string]int)
	for _, p := range reads {
		arg := given[p.name]
		if arg == nil {
			continue // not inserted
		}
		if _, known := sizes[p.name]; !known {
			sizes[p.name] = inlineSize(arg, syntax.MaxSource+1)
		}
		size += sizes[p.name] - (p.to - p.from) // names of parameters have no letters of several bytes
		if size > syntax.MaxSource+len(e.Source) {
			break // the names that remain are shorter than that
		}
	}
	return size
}

// inlineSize returns the length of what [expansion.inline] writes. It stops once there are enough bytes.
func inlineSize(v *expr.Value, enough int) int {
	const brackets, separator = 2, 2
	switch v.Kind {
	case expr.ValueExpr:
		if text := v.Computed.Source; len(text) > enough || isName(text) {
			return len(text)
		}
		return len(v.Computed.Source) + brackets
	case expr.ValueSecret:
		return len("null")
	case expr.ValueList, expr.ValueMap:
		size := brackets + separator*max(0, len(v.Elems)-1)
		for i, item := range v.Elems {
			if size > enough {
				break
			}
			if v.Kind == expr.ValueMap {
				size += quotedSize(v.Names[i].Name, enough) + len(": ")
			}
			size += inlineSize(item, enough)
		}
		return size
	}
	if text, ok := v.Scalar.(string); ok {
		return quotedSize(text, enough)
	}
	return len(inlineNumber(v.Scalar))
}

// quotedSize returns the length of a text in quotes, or more than enough.
func quotedSize(text string, enough int) int {
	if len(text) > enough {
		return len(text)
	}
	return len(source.QuoteExpr(text))
}
