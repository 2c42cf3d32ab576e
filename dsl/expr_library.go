package dsl

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// functions is the library of the expression language: what is not here cannot
// be called. Nothing in it reads a clock or chance: a repeated run must compute
// the same again.
var functions = []function{
	text1("upper", "upper(text)", "gives the text in upper case.", strings.ToUpper),
	text1("lower", "lower(text)", "gives the text in lower case.", strings.ToLower),
	{Function{"trim", "trim(text, chars?)", "removes white space, or the given characters, from both ends."},
		[]shape{stringShape, stringShape}, 1, false, stringShape, trim},
	text2("trimPrefix", "trimPrefix(text, prefix)", "removes a prefix.", strings.TrimPrefix),
	text2("trimSuffix", "trimSuffix(text, suffix)", "removes a suffix.", strings.TrimSuffix),
	{Function{"split", "split(text, separator)", "cuts the text into a list at each separator."},
		[]shape{stringShape, stringShape}, 0, false, listShape, split},
	{Function{"join", "join(list, separator?)", "joins a list of strings."},
		[]shape{listShape, stringShape}, 1, false, stringShape, join},
	{Function{"replace", "replace(text, old, new)", "replaces each occurrence of old."},
		[]shape{stringShape, stringShape, stringShape}, 0, false, stringShape, replace},
	{Function{"repeat", "repeat(text, times)", "repeats the text."},
		[]shape{stringShape, intShape}, 0, false, stringShape, repeat},
	{Function{"indexOf", "indexOf(text, part)", "gives the position of the first occurrence in characters, or -1."},
		[]shape{stringShape, stringShape}, 0, false, intShape, position(strings.Index)},
	{Function{"lastIndexOf", "lastIndexOf(text, part)", "gives the position of the last occurrence in characters, or -1."},
		[]shape{stringShape, stringShape}, 0, false, intShape, position(strings.LastIndex)},

	{Function{"string", "string(value)", "writes a number, a truth value or null as text; other values as JSON."},
		[]shape{anyShape}, 0, false, stringShape, toString},
	{Function{"int", "int(value)", "makes a whole number of a string, or cuts the fraction of a number."},
		[]shape{stringShape | numberShape}, 0, false, intShape, toInt},
	{Function{"float", "float(value)", "makes a number of a string or a number."},
		[]shape{stringShape | numberShape}, 0, false, floatShape, toFloat},
	{Function{"type", "type(value)", "names the type: null, bool, int, float, string, list, map or secret."},
		[]shape{anyShape}, 0, false, stringShape, typeName},
	{Function{"toJSON", "toJSON(value)", "writes the value as JSON, the keys in order."},
		[]shape{anyShape}, 0, false, stringShape, toJSON},
	{Function{"fromJSON", "fromJSON(text)", "reads JSON."},
		[]shape{stringShape}, 0, false, anyShape, fromJSON},
	{Function{"toBase64", "toBase64(text)", "writes the text in base64."},
		[]shape{stringShape}, 0, false, stringShape, toBase64},
	{Function{"fromBase64", "fromBase64(text)", "reads base64."},
		[]shape{stringShape}, 0, false, stringShape, fromBase64},

	{Function{"abs", "abs(number)", "gives the number without its sign."},
		[]shape{numberShape}, 0, false, numberShape, abs},
	rounding("ceil", "ceil(number)", "gives the next whole number above.", math.Ceil),
	rounding("floor", "floor(number)", "gives the next whole number below.", math.Floor),
	rounding("round", "round(number)", "gives the nearest whole number, halves away from zero.", math.Round),
	{Function{"min", "min(list) or min(a, b, …)", "gives the least number or string."},
		[]shape{listShape | numberShape | stringShape}, 0, true, anyShape, extreme(-1)},
	{Function{"max", "max(list) or max(a, b, …)", "gives the greatest number or string."},
		[]shape{listShape | numberShape | stringShape}, 0, true, anyShape, extreme(1)},
	{Function{"mean", "mean(list)", "gives the arithmetic mean of numbers."},
		[]shape{listShape}, 0, false, floatShape, mean},
	{Function{"median", "median(list)", "gives the middle of the sorted numbers."},
		[]shape{listShape}, 0, false, numberShape, median},

	{Function{"len", "len(value)", "gives the number of characters, elements or keys."},
		[]shape{stringShape | listShape | mapShape}, 0, false, intShape, length},
	{Function{"first", "first(list)", "gives the first element; null when there is none."},
		[]shape{listShape}, 0, false, anyShape, func(_ *meter, a []any) (any, error) { return end(a[0].([]any), 0), nil }},
	{Function{"last", "last(list)", "gives the last element; null when there is none."},
		[]shape{listShape}, 0, false, anyShape, func(_ *meter, a []any) (any, error) {
			return end(a[0].([]any), len(a[0].([]any))-1), nil
		}},
	{Function{"take", "take(list, n)", "gives the first n elements."},
		[]shape{listShape, intShape}, 0, false, listShape, take},
	{Function{"reverse", "reverse(list)", "gives the elements in reverse order."},
		[]shape{listShape}, 0, false, listShape, reverse},
	{Function{"sort", "sort(list, order?)", `sorts numbers or strings; order is "asc" or "desc".`},
		[]shape{listShape, stringShape}, 1, false, listShape, sortList},
	{Function{"uniq", "uniq(list)", "removes repeated elements."},
		[]shape{listShape}, 0, false, listShape, uniq},
	{Function{"concat", "concat(list, list, …)", "joins lists."},
		[]shape{listShape}, 0, true, listShape, concat},
	{Function{"flatten", "flatten(list)", "puts the elements of the lists in a list in their place."},
		[]shape{listShape}, 0, false, listShape, flatten},

	{Function{"keys", "keys(map)", "gives the keys in order."},
		[]shape{mapShape}, 0, false, listShape, keys},
	{Function{"values", "values(map)", "gives the values in the order of their keys."},
		[]shape{mapShape}, 0, false, listShape, values},
	{Function{"toPairs", "toPairs(map)", "gives [key, value] pairs in the order of the keys."},
		[]shape{mapShape}, 0, false, listShape, toPairs},
	{Function{"fromPairs", "fromPairs(list)", "makes a mapping of [key, value] pairs."},
		[]shape{listShape}, 0, false, mapShape, fromPairs},
	{Function{"merge", "merge(map, map, …)", "joins mappings; later ones win."},
		[]shape{mapShape}, 0, true, mapShape, merge},
	{Function{"get", "get(value, key, default?)", "gives a member of a mapping or list, or the default when there is none."},
		[]shape{mapShape | listShape | nullShape, stringShape | intShape, anyShape}, 1, false, anyShape, get},

	loopFunction("all", "all(list, condition)", "tells whether the condition is true for each element.", boolShape, boolShape),
	loopFunction("any", "any(list, condition)", "tells whether the condition is true for some element.", boolShape, boolShape),
	loopFunction("none", "none(list, condition)", "tells whether the condition is true for no element.", boolShape, boolShape),
	loopFunction("one", "one(list, condition)", "tells whether the condition is true for exactly one element.", boolShape, boolShape),
	loopFunction("count", "count(list, condition?)", "counts the elements for which the condition is true.", boolShape, intShape),
	loopFunction("filter", "filter(list, condition)", "gives the elements for which the condition is true.", boolShape, listShape),
	loopFunction("find", "find(list, condition)", "gives the first element for which the condition is true; null when there is none.", boolShape, anyShape),
	loopFunction("findIndex", "findIndex(list, condition)", "gives the position of that element, or -1.", boolShape, intShape),
	loopFunction("findLast", "findLast(list, condition)", "gives the last element for which the condition is true; null when there is none.", boolShape, anyShape),
	loopFunction("findLastIndex", "findLastIndex(list, condition)", "gives the position of that element, or -1.", boolShape, intShape),
	loopFunction("map", "map(list, value)", "gives the value computed for each element, which is #.", anyShape, listShape),
	loopFunction("sum", "sum(list, value?)", "adds the numbers, or the values computed for the elements.", numberShape, numberShape),
	loopFunction("groupBy", "groupBy(list, key)", "gathers the elements in a mapping by a key computed for each.", anyShape, mapShape),
	loopFunction("sortBy", "sortBy(list, key, order?)", "sorts by a key computed for each element.", anyShape, listShape),
	loopFunction("reduce", "reduce(list, value, first?)", "computes #acc anew for each element, beginning with first.", anyShape, anyShape),
}

func loopFunction(name, signature, doc string, body, result shape) function {
	return function{Function: Function{name, signature, doc}, args: []shape{listShape, body}, result: result}
}

func text1(name, signature, doc string, call func(string) string) function {
	return function{Function{name, signature, doc}, []shape{stringShape}, 0, false, stringShape,
		func(m *meter, a []any) (any, error) {
			s := a[0].(string)
			if err := m.text(len(s)); err != nil {
				return nil, err
			}
			return call(s), nil
		}}
}

func text2(name, signature, doc string, call func(s, part string) string) function {
	return function{Function{name, signature, doc}, []shape{stringShape, stringShape}, 0, false, stringShape,
		func(m *meter, a []any) (any, error) {
			return call(a[0].(string), a[1].(string)), m.read(len(a[0].(string)))
		}}
}

func rounding(name, signature, doc string, round func(float64) float64) function {
	return function{Function{name, signature, doc}, []shape{numberShape}, 0, false, intShape,
		func(_ *meter, a []any) (any, error) {
			if f, ok := a[0].(float64); ok {
				return whole(round(f))
			}
			return a[0], nil
		}}
}

// whole converts a number without a fraction.
func whole(f float64) (any, error) {
	if f < -1<<63 || f >= 1<<63 {
		return nil, errOverflow
	}
	return int(f), nil
}

func trim(m *meter, a []any) (any, error) {
	s := a[0].(string)
	if err := m.read(len(s)); err != nil {
		return nil, err
	}
	if len(a) == 1 {
		return strings.TrimSpace(s), nil
	}
	return strings.Trim(s, a[1].(string)), m.step(len(a[1].(string)))
}

func split(m *meter, a []any) (any, error) {
	s, sep := a[0].(string), a[1].(string)
	if err := m.read(len(s)); err != nil {
		return nil, err
	}
	n := strings.Count(s, sep) + 1
	if sep == "" {
		n = utf8.RuneCountInString(s)
	}
	if err := m.list(n); err != nil {
		return nil, err
	}
	return anys(strings.Split(s, sep)), nil
}

// anys makes data of a slice.
func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i, x := range list {
		out[i] = x
	}
	return out
}

func join(m *meter, a []any) (any, error) {
	sep, size := "", 0
	if len(a) > 1 {
		sep = a[1].(string)
	}
	list := a[0].([]any)
	if err := m.step(len(list)); err != nil {
		return nil, err
	}
	parts := make([]string, len(list))
	for i, x := range list {
		s, ok := x.(string)
		if !ok {
			return nil, fmt.Errorf("join needs strings, have %s (make strings of them: map(list, string(#)))", describe(x))
		}
		parts[i] = s
		if size += len(s) + len(sep); size > maxText+len(sep) {
			return nil, errText
		}
	}
	return strings.Join(parts, sep), m.text(max(0, size-len(sep)))
}

func replace(m *meter, a []any) (any, error) {
	s, old, by := a[0].(string), a[1].(string), a[2].(string)
	if err := m.read(len(s)); err != nil {
		return nil, err
	}
	if err := m.text(len(s) + strings.Count(s, old)*(len(by)-len(old))); err != nil {
		return nil, err
	}
	return strings.ReplaceAll(s, old, by), nil
}

func repeat(m *meter, a []any) (any, error) {
	s, n := a[0].(string), a[1].(int)
	if n < 0 {
		return nil, fmt.Errorf("repeat needs a number that is not negative, have %d", n)
	}
	if n > maxText || len(s)*n > maxText {
		return nil, errText
	}
	if err := m.text(len(s) * n); err != nil {
		return nil, err
	}
	return strings.Repeat(s, n), nil
}

func position(find func(s, part string) int) func(*meter, []any) (any, error) {
	return func(m *meter, a []any) (any, error) {
		s := a[0].(string)
		if err := m.read(len(s)); err != nil {
			return nil, err
		}
		i := find(s, a[1].(string))
		if i < 0 {
			return -1, nil
		}
		return utf8.RuneCountInString(s[:i]), nil
	}
}

func toString(m *meter, a []any) (any, error) {
	if s, err := scalarText(a[0]); err == nil {
		return s, nil
	}
	return toJSON(m, a)
}

// scalarText writes a simple value as text.
func scalarText(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "null", nil
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int:
		return strconv.Itoa(v), nil
	case float64:
		return formatFloat(v), nil
	}
	return "", fmt.Errorf("want a simple value, have %s", describe(v))
}

func toInt(_ *meter, a []any) (any, error) {
	switch v := a[0].(type) {
	case float64:
		return whole(math.Trunc(v))
	case string:
		n, err := strconv.Atoi(strings.TrimSpace(v))
		if err != nil {
			return nil, fmt.Errorf("want a whole number of at most 64 bits, have %s", describe(v))
		}
		return n, nil
	}
	return a[0], nil
}

func toFloat(_ *meter, a []any) (any, error) {
	switch v := a[0].(type) {
	case int:
		return float64(v), nil
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("want a number, have %s", describe(v))
		}
		return f, nil
	}
	return a[0], nil
}

func typeName(_ *meter, a []any) (any, error) {
	names := map[shape]string{
		nullShape: "null", boolShape: "bool", intShape: "int", floatShape: "float",
		stringShape: "string", listShape: "list", mapShape: "map", secretShape: "secret",
	}
	return names[shapeOfValue(a[0])], nil
}

func toJSON(m *meter, a []any) (any, error) {
	size := 0
	v, err := fresh(a[0], &size, 0) // bounds it
	if err != nil {
		return nil, err
	}
	if err := m.read(size); err != nil {
		return nil, err
	}
	text, err := FormatJSON(v)
	if err != nil {
		return nil, err
	}
	return string(text), m.text(len(text))
}

func fromJSON(m *meter, a []any) (any, error) {
	s := a[0].(string)
	if err := m.step(len(s)); err != nil {
		return nil, err
	}
	if m.memory += 16 * len(s); m.memory > maxMemory {
		return nil, errMemory
	}
	return ParseJSON([]byte(s))
}

func toBase64(m *meter, a []any) (any, error) {
	s := a[0].(string)
	if err := m.text(base64.StdEncoding.EncodedLen(len(s))); err != nil {
		return nil, err
	}
	return base64.StdEncoding.EncodeToString([]byte(s)), nil
}

func fromBase64(m *meter, a []any) (any, error) {
	s := a[0].(string)
	if err := m.text(base64.StdEncoding.DecodedLen(len(s))); err != nil {
		return nil, err
	}
	out, err := base64.StdEncoding.DecodeString(s)
	if err != nil || !utf8.Valid(out) {
		return nil, errors.New("the string is not the base64 of a text")
	}
	return string(out), nil
}

func abs(m *meter, a []any) (any, error) {
	switch v := a[0].(type) {
	case int:
		if v < 0 {
			return subtract(m, 0, v)
		}
	case float64:
		return math.Abs(v), nil
	}
	return a[0], nil
}

// extreme gives the value that is least (sign -1) or greatest (sign 1).
func extreme(sign int) func(*meter, []any) (any, error) {
	return func(m *meter, a []any) (any, error) {
		list, ok := a[0].([]any)
		if !ok {
			list = a
		}
		var best any
		for i, v := range list {
			if i == 0 {
				best = v
			}
			c, err := compare(m, v, best) // with itself, too: it must be comparable
			if err != nil {
				return nil, err
			}
			if c == sign {
				best = v
			}
		}
		return best, m.step(len(list))
	}
}

func mean(m *meter, a []any) (any, error) {
	list := a[0].([]any)
	if len(list) == 0 {
		return nil, errors.New("an empty list has no mean")
	}
	total := any(0.0)
	for _, v := range list {
		var err error
		if total, err = plus(m, total, v); err != nil {
			return nil, err
		}
	}
	if err := m.step(len(list)); err != nil {
		return nil, err
	}
	return divide(m, total, len(list))
}

func median(m *meter, a []any) (any, error) {
	sorted, err := sortList(m, a)
	if err != nil {
		return nil, err
	}
	list := sorted.([]any)
	n := len(list)
	switch {
	case n == 0:
		return nil, errors.New("an empty list has no median")
	case n%2 == 1:
		_, err := number("median", list[n/2])
		return list[n/2], err
	}
	total, err := plus(m, list[n/2-1], list[n/2])
	if err != nil {
		return nil, err
	}
	return divide(m, total, 2)
}

func length(m *meter, a []any) (any, error) {
	switch v := a[0].(type) {
	case string:
		return utf8.RuneCountInString(v), m.read(len(v))
	case []any:
		return len(v), nil
	}
	return len(a[0].(map[string]any)), nil
}

// end gives an element, or null when there is none.
func end(list []any, i int) any {
	if i < 0 || i >= len(list) {
		return nil
	}
	return list[i]
}

func take(_ *meter, a []any) (any, error) {
	list := a[0].([]any)
	return list[:min(max(0, a[1].(int)), len(list))], nil
}

func reverse(m *meter, a []any) (any, error) {
	list := a[0].([]any)
	if err := m.list(len(list)); err != nil {
		return nil, err
	}
	out := slices.Clone(list)
	slices.Reverse(out)
	return out, nil
}

func sortList(m *meter, a []any) (any, error) {
	list := a[0].([]any)
	sign := 1
	if len(a) > 1 {
		switch a[1] {
		case "asc":
		case "desc":
			sign = -1
		default:
			return nil, fmt.Errorf(`the order of sort is "asc" or "desc", have %s`, describe(a[1]))
		}
	}
	if err := errors.Join(m.list(len(list)), m.sort(len(list))); err != nil {
		return nil, err
	}
	out := slices.Clone(list)
	var err error
	slices.SortStableFunc(out, func(x, y any) int {
		c, e := compare(m, x, y)
		if err == nil {
			err = e
		}
		return sign * c
	})
	return out, err
}

func uniq(m *meter, a []any) (any, error) {
	out := []any{}
	for _, x := range a[0].([]any) {
		found, err := contains(m, x, out)
		if err != nil {
			return nil, err
		}
		if found == false {
			out = append(out, x)
		}
	}
	return out, m.list(len(out))
}

func concat(m *meter, a []any) (any, error) {
	out := []any{}
	for _, x := range a {
		list := x.([]any)
		if err := m.list(len(out) + len(list)); err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

func flatten(m *meter, a []any) (any, error) {
	out := []any{}
	for _, x := range a[0].([]any) {
		list, ok := x.([]any)
		if !ok {
			list = []any{x}
		}
		if len(out)+len(list) > maxList {
			return nil, errList
		}
		if err := m.list(len(list)); err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

func sortedKeys(m *meter, v any) (map[string]any, []string, error) {
	of := v.(map[string]any)
	if err := errors.Join(m.list(len(of)), m.sort(len(of))); err != nil {
		return nil, nil, err
	}
	return of, slices.Sorted(maps.Keys(of)), nil
}

func keys(m *meter, a []any) (any, error) {
	_, names, err := sortedKeys(m, a[0])
	return anys(names), err
}

func values(m *meter, a []any) (any, error) {
	of, names, err := sortedKeys(m, a[0])
	out := make([]any, len(names))
	for i, k := range names {
		out[i] = of[k]
	}
	return out, err
}

func toPairs(m *meter, a []any) (any, error) {
	of, names, err := sortedKeys(m, a[0])
	out := make([]any, len(names))
	for i, k := range names {
		out[i] = []any{k, of[k]}
	}
	return out, err
}

func fromPairs(m *meter, a []any) (any, error) {
	list := a[0].([]any)
	if err := m.list(len(list)); err != nil {
		return nil, err
	}
	out := make(map[string]any, len(list))
	for _, x := range list {
		pair, ok := x.([]any)
		if !ok || len(pair) != 2 {
			return nil, fmt.Errorf("fromPairs needs [key, value] pairs, have %s", describe(x))
		}
		key, ok := pair[0].(string)
		if !ok {
			return nil, needs("a key", stringShape, pair[0])
		}
		out[key] = pair[1]
	}
	return out, nil
}

func merge(m *meter, a []any) (any, error) {
	out := map[string]any{}
	for _, x := range a {
		of := x.(map[string]any)
		if err := m.list(len(of)); err != nil {
			return nil, err
		}
		maps.Copy(out, of)
	}
	return out, nil
}

func get(_ *meter, a []any) (any, error) {
	var otherwise any
	if len(a) > 2 {
		otherwise = a[2]
	}
	switch v := a[0].(type) {
	case map[string]any:
		key, ok := a[1].(string)
		if !ok {
			return nil, needs("the key of a mapping", stringShape, a[1])
		}
		if x, ok := v[key]; ok {
			return x, nil
		}
	case []any:
		i, ok := a[1].(int)
		if !ok {
			return nil, needs("the index of a list", intShape, a[1])
		}
		if i < 0 {
			i += len(v)
		}
		if i >= 0 && i < len(v) {
			return v[i], nil
		}
	}
	return otherwise, nil
}
