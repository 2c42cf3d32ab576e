package library

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"procaas/dsl/datum"
	"procaas/dsl/ops"
)

// The functions on lists and mappings.

// length counts the characters of a string, not its bytes.
func length(m *ops.Meter, a []any) (any, error) {
	switch v := a[0].(type) {
	case string:
		return utf8.RuneCountInString(v), m.Read(len(v))
	case []any:
		return len(v), nil
	}
	return len(a[0].(map[string]any)), nil
}

func first(_ *ops.Meter, a []any) (any, error) {
	if list := a[0].([]any); len(list) > 0 {
		return list[0], nil
	}
	return nil, nil
}

func last(_ *ops.Meter, a []any) (any, error) {
	if list := a[0].([]any); len(list) > 0 {
		return list[len(list)-1], nil
	}
	return nil, nil
}

// take shares the memory of the list, since lists never change.
func take(_ *ops.Meter, a []any) (any, error) {
	list := a[0].([]any)
	return list[:min(max(0, a[1].(int)), len(list))], nil
}

func reverse(m *ops.Meter, a []any) (any, error) {
	list := a[0].([]any)
	if err := m.List(len(list)); err != nil {
		return nil, err
	}
	out := slices.Clone(list)
	slices.Reverse(out)
	return out, nil
}

// sortList sorts a copy, and counts the steps before. Sorting cannot be stopped, so it keeps the first error.
func sortList(m *ops.Meter, a []any) (any, error) {
	list := a[0].([]any)
	sign := 1
	if len(a) > 1 {
		switch a[1] {
		case "asc":
		case "desc":
			sign = -1
		default:
			return nil, fmt.Errorf(`the order of sort is "asc" or "desc", have %s`, datum.Describe(a[1]))
		}
	}
	if err := errors.Join(m.List(len(list)), m.Sort(len(list))); err != nil {
		return nil, err
	}
	out := slices.Clone(list)
	var err error
	slices.SortStableFunc(out, func(x, y any) int {
		c, e := ops.Compare(m, x, y)
		if err == nil {
			err = e
		}
		return sign * c
	})
	return out, err
}

// uniq keeps the first of equal elements. It compares each with all kept ones, since lists and mappings have no
// order. The meter limits that.
func uniq(m *ops.Meter, a []any) (any, error) {
	out := []any{}
	for _, x := range a[0].([]any) {
		found, err := ops.Contains(m, x, out)
		if err != nil {
			return nil, err
		}
		if found == false {
			out = append(out, x)
		}
	}
	return out, m.List(len(out))
}

func concat(m *ops.Meter, a []any) (any, error) {
	out := []any{}
	for _, x := range a {
		list := x.([]any)
		if err := m.List(len(out) + len(list)); err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// flatten flattens one level. It keeps elements that are not lists.
func flatten(m *ops.Meter, a []any) (any, error) {
	out := []any{}
	for _, x := range a[0].([]any) {
		list, ok := x.([]any)
		if !ok {
			list = []any{x}
		}
		if len(out)+len(list) > ops.MaxList {
			return nil, ops.ErrList
		}
		if err := m.List(len(list)); err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// sortedKeys returns a mapping and its sorted keys. The order of a Go map is random, but a repeated run must
// compute the same values.
func sortedKeys(m *ops.Meter, v any) (map[string]any, []string, error) {
	of := v.(map[string]any)
	if err := errors.Join(m.List(len(of)), m.Sort(len(of))); err != nil {
		return nil, nil, err
	}
	return of, slices.Sorted(maps.Keys(of)), nil
}

func keys(m *ops.Meter, a []any) (any, error) {
	_, names, err := sortedKeys(m, a[0])
	return anys(names), err
}

func values(m *ops.Meter, a []any) (any, error) {
	of, names, err := sortedKeys(m, a[0])
	out := make([]any, len(names))
	for i, k := range names {
		out[i] = of[k]
	}
	return out, err
}

func toPairs(m *ops.Meter, a []any) (any, error) {
	of, names, err := sortedKeys(m, a[0])
	out := make([]any, len(names))
	for i, k := range names {
		out[i] = []any{k, of[k]}
	}
	return out, err
}

// fromPairs makes a mapping. Of two pairs with the same key, the later one counts.
func fromPairs(m *ops.Meter, a []any) (any, error) {
	list := a[0].([]any)
	if err := m.List(len(list)); err != nil {
		return nil, err
	}
	out := make(map[string]any, len(list))
	for _, x := range list {
		pair, ok := x.([]any)
		if !ok || len(pair) != 2 {
			return nil, fmt.Errorf("fromPairs needs [key, value] pairs, have %s", datum.Describe(x))
		}
		key, ok := pair[0].(string)
		if !ok {
			return nil, ops.Needs("a key", datum.StringShape, pair[0])
		}
		out[key] = pair[1]
	}
	return out, nil
}

// merge joins mappings one level deep. It replaces members that are mappings themselves.
func merge(m *ops.Meter, a []any) (any, error) {
	out := map[string]any{}
	for _, x := range a {
		of := x.(map[string]any)
		if err := m.List(len(of)); err != nil {
			return nil, err
		}
		maps.Copy(out, of)
	}
	return out, nil
}

// get returns a member, or null if it is missing. The key may be computed.
func get(_ *ops.Meter, a []any) (any, error) {
	var otherwise any
	if len(a) > 2 {
		otherwise = a[2]
	}
	switch v := a[0].(type) {
	case map[string]any:
		key, ok := a[1].(string)
		if !ok {
			return nil, ops.Needs("the key of a mapping", datum.StringShape, a[1])
		}
		if x, ok := v[key]; ok {
			return x, nil
		}
	case []any:
		i, ok := a[1].(int)
		if !ok {
			return nil, ops.Needs("the index of a list", datum.IntShape, a[1])
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
