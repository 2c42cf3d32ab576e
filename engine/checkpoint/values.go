package checkpoint

import (
	"cmp"
	"encoding/json"
	"slices"
)

// Values are named values as JSON, sorted by name. There are few, so that they need no table.
type Values []Value

// A Value is one of [Values].
type Value struct {
	Name string
	Raw  json.RawMessage
}

// ValuesOf returns some values, which need not be sorted. It takes over the list.
func ValuesOf(list []Value) Values {
	slices.SortFunc(list, func(a, b Value) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Get returns the value of a name. ok is false if there is none.
func (v Values) Get(name string) (raw json.RawMessage, ok bool) {
	i, ok := v.find(name)
	if !ok {
		return nil, false
	}
	return v[i].Raw, true
}

// Set sets the value of a name, and returns the one before. had is false if there was none.
func (v *Values) Set(name string, raw json.RawMessage) (was json.RawMessage, had bool) {
	i, had := v.find(name)
	if had {
		was, (*v)[i].Raw = (*v)[i].Raw, raw
		return was, true
	}
	*v = slices.Insert(*v, i, Value{name, raw})
	return nil, false
}

// Delete removes a name.
func (v *Values) Delete(name string) {
	if i, ok := v.find(name); ok {
		*v = slices.Delete(*v, i, i+1)
	}
}

// find returns where a name is, or belongs.
func (v Values) find(name string) (int, bool) {
	return slices.BinarySearchFunc(v, name, func(have Value, name string) int { return cmp.Compare(have.Name, name) })
}

// UnmarshalJSON implements [json.Unmarshaler].
func (v *Values) UnmarshalJSON(data []byte) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		return err
	}
	list := make([]Value, 0, len(object))
	for name, raw := range object {
		list = append(list, Value{name, raw})
	}
	*v = ValuesOf(list)
	return nil
}

// Object returns the values as one JSON object.
func (v Values) Object() []byte { return jsonText{}.values("{", v) }

// MarshalJSON implements [json.Marshaler].
func (v Values) MarshalJSON() ([]byte, error) { return v.Object(), nil }
