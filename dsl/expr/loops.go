package expr

import (
	"fmt"
	"slices"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/datum"
	"procaas/dsl/library"
	"procaas/dsl/ops"
	"procaas/dsl/typing"
)

// A looper is one call of a function that evaluates its body, a part of the expression, for each element of a
// list.
type looper struct {
	*frame
	name string
	list []any
	item item
	body func() (any, error) // evaluates the body for the current element
	cost int                 // steps of the body
	more any                 // third argument; nil if omitted
	has  bool                // whether it was given
}

// each evaluates the body for the elements in order, until visit returns true.
func (l *looper) each(visit func(i int, v any) (done bool, err error)) error {
	for i := range l.list {
		v, err := l.at(i)
		if err != nil {
			return err
		}
		if done, err := visit(i, v); done || err != nil {
			return err
		}
	}
	return nil
}

// at evaluates the body for one element.
func (l *looper) at(i int) (any, error) {
	if err := l.Step(l.cost); err != nil {
		return nil, err
	}
	l.slots[l.item.element], l.slots[l.item.index] = l.list[i], i
	return l.body()
}

// loop compiles a call of a function with a predicate.
func (b *builder) loop(x *ast.BuiltinNode) part {
	fn, run := library.Named(x.Name), looping[x.Name]
	list := b.want(x.Arguments[0], b.build(x.Arguments[0]), datum.ListShape, x.Name)
	it := item{element: b.slot(), index: b.slot(), acc: -1}
	more := part{}
	if len(x.Arguments) > 2 {
		more = b.want(x.Arguments[2], b.build(x.Arguments[2]), fn.Args[2], x.Name)
	}
	if x.Name == "reduce" {
		it.acc, it.accShape = b.slot(), datum.AnyShape
	}
	before := b.nodes // the nodes of the body are the cost of each element
	body := part{eval: func(f *frame) (any, error) { return f.slots[it.element], nil }, shape: datum.AnyShape}
	it.outline = elementOf(list.outline)
	it.first = it.outline
	if len(x.Arguments) > 2 {
		it.first = more.known()
	}
	if len(x.Arguments) == 1 {
		b.checkElements(x.Arguments[0], x.Name, list)
	}
	known := []*typing.Outline{list.known(), it.outline}
	if len(x.Arguments) > 1 {
		b.items = append(b.items, it)
		n := x.Arguments[1].(*ast.PredicateNode).Node
		body = b.build(n)
		known[1] = body.known()
		if x.Name == "filter" || x.Name == "find" || x.Name == "findLast" {
			known[0] = listOf(under(it.outline, it.track(), b.factsOf(n, true)))
		}
		b.checkLoop(x, n)
		b.items = b.items[:len(b.items)-1]
	}
	b.checkKeys(x, body)
	if truths := fn.Args[1]; truths != datum.AnyShape && len(x.Arguments) > 1 {
		b.want(x.Arguments[1], body, truths, x.Name)
	}
	cost := 1 + b.nodes - before
	result := resultOf(fn, known)
	if x.Name == "reduce" {
		result = it.first.Unsure()
	}
	return part{shape: fn.Result, outline: result, eval: b.guard(x, func(f *frame) (any, error) {
		v, err := list.eval(f)
		if err != nil {
			return nil, err
		}
		elements, ok := v.([]any)
		if !ok {
			return nil, ops.Needs(x.Name, datum.ListShape, v)
		}
		l := &looper{
			frame: f, name: x.Name, list: elements, item: it, cost: cost,
			body: func() (any, error) { return body.eval(f) },
		}
		if more.eval != nil {
			if l.more, err = more.eval(f); err != nil {
				return nil, err
			}
			l.has = true
		}
		return run(l)
	})}
}

// looping are the functions with a predicate.
var looping = map[string]func(l *looper) (any, error){
	"all":           func(l *looper) (any, error) { n, err := l.truths(1, false); return n == 0, err },
	"none":          func(l *looper) (any, error) { n, err := l.truths(1, true); return n == 0, err },
	"any":           func(l *looper) (any, error) { n, err := l.truths(1, true); return n == 1, err },
	"one":           func(l *looper) (any, error) { n, err := l.truths(2, true); return n == 1, err },
	"count":         func(l *looper) (any, error) { n, err := l.truths(0, true); return n, err },
	"find":          func(l *looper) (any, error) { i, err := l.first(); return l.element(i), err },
	"findIndex":     func(l *looper) (any, error) { return l.first() },
	"findLast":      func(l *looper) (any, error) { i, err := l.last(); return l.element(i), err },
	"findLastIndex": func(l *looper) (any, error) { return l.last() },
	"filter":        (*looper).filter,
	"map":           (*looper).transform,
	"sum":           (*looper).sum,
	"groupBy":       (*looper).groupBy,
	"sortBy":        (*looper).sortBy,
	"reduce":        (*looper).reduce,
}

// truth demands true or false of the body.
func (l *looper) truth(v any) (bool, error) {
	t, ok := v.(bool)
	if !ok {
		return false, ops.Needs("the condition of "+l.name, datum.BoolShape, v)
	}
	return t, nil
}

// truths counts the elements for which the body is want, up to most of them;
// 0 means no limit.
func (l *looper) truths(most int, want bool) (n int, err error) {
	err = l.each(func(_ int, v any) (bool, error) {
		t, err := l.truth(v)
		if t == want && err == nil {
			n++
		}
		return n == most && most > 0, err
	})
	return n, err
}

// element returns the element at i; null for -1.
func (l *looper) element(i int) any {
	if i < 0 {
		return nil
	}
	return l.list[i]
}

// first returns the index of the first element for which the body is true, or -1.
func (l *looper) first() (int, error) {
	found := -1
	err := l.each(func(i int, v any) (bool, error) {
		t, err := l.truth(v)
		if t {
			found = i
		}
		return t, err
	})
	return found, err
}

// last is first from the end of the list.
func (l *looper) last() (int, error) {
	for i := range slices.Backward(l.list) {
		v, err := l.at(i)
		if err != nil {
			return -1, err
		}
		if t, err := l.truth(v); t || err != nil {
			return i, err
		}
	}
	return -1, nil
}

// filter counts its result when it is known, since it may be much shorter than the list.
func (l *looper) filter() (any, error) {
	out := []any{}
	err := l.each(func(i int, v any) (bool, error) {
		t, err := l.truth(v)
		if t {
			out = append(out, l.list[i])
		}
		return false, err
	})
	if err != nil {
		return nil, err
	}
	return out, l.frame.List(len(out))
}

// transform is the function map, whose name is a keyword of Go.
func (l *looper) transform() (any, error) {
	if err := l.frame.List(len(l.list)); err != nil {
		return nil, err
	}
	out := make([]any, 0, len(l.list))
	err := l.each(func(_ int, v any) (bool, error) {
		out = append(out, v)
		return false, nil
	})
	return out, err
}

// sum begins with the integer 0, so a sum of integers is an integer.
func (l *looper) sum() (any, error) {
	total := any(0)
	err := l.each(func(_ int, v any) (_ bool, err error) {
		total, err = ops.Plus(&l.Meter, total, v)
		return false, err
	})
	return total, err
}

// groupBy groups the elements by the string that the body returns.
func (l *looper) groupBy() (any, error) {
	if err := l.frame.List(len(l.list)); err != nil {
		return nil, err
	}
	groups := map[string]any{}
	err := l.each(func(i int, v any) (bool, error) {
		key, err := library.ScalarText(v)
		if err != nil {
			return false, fmt.Errorf("the key of groupBy: %w", err)
		}
		group, _ := groups[key].([]any)
		groups[key] = append(group, l.list[i])
		return false, nil
	})
	return groups, err
}

// sortBy evaluates each key once, before it sorts.
func (l *looper) sortBy() (any, error) {
	falling := l.has && l.more == "desc"
	if l.has && l.more != "asc" && l.more != "desc" {
		return nil, fmt.Errorf(`the order of sortBy is "asc" or "desc", have %s`, datum.Describe(l.more))
	}
	type pair struct{ key, value any }
	pairs := make([]pair, 0, len(l.list))
	if err := l.frame.List(len(l.list)); err != nil {
		return nil, err
	}
	err := l.each(func(i int, v any) (bool, error) {
		pairs = append(pairs, pair{v, l.list[i]})
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	if err := l.Sort(len(pairs)); err != nil {
		return nil, err
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		c, e := ops.Compare(&l.Meter, a.key, b.key)
		if e != nil && err == nil {
			err = e
		}
		if falling {
			return -c
		}
		return c
	})
	out := make([]any, len(pairs))
	for i, p := range pairs {
		out[i] = p.value
	}
	return out, err
}

// reduce begins with the third argument, or with the first element if there is none.
func (l *looper) reduce() (any, error) {
	acc, begin := l.more, 0
	if !l.has {
		if len(l.list) == 0 {
			return nil, fmt.Errorf("reduce of an empty list needs a first value: reduce(list, body, first)")
		}
		acc, begin = l.list[0], 1
	}
	for i := begin; i < len(l.list); i++ {
		l.slots[l.item.acc] = acc
		var err error
		if acc, err = l.at(i); err != nil {
			return nil, err
		}
	}
	return acc, nil
}
