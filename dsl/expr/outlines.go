package expr

import (
	"procaas/dsl/datum"
	"procaas/dsl/typing"
)

// Outline returns what is known of a value whose expressions are compiled.
func (v *Value) Outline() *typing.Outline {
	if v == nil {
		return &typing.Outline{Shape: datum.NullShape}
	}
	switch v.Kind {
	case ValueExpr:
		return v.Computed.Result
	case ValueSecret:
		return typing.OfShape(datum.SecretShape)
	case ValueList:
		out := &typing.Outline{Shape: datum.ListShape}
		for i, item := range v.Elems {
			if i == 0 {
				out.Elem = item.Outline()
				continue
			}
			out.Elem = typing.Either(out.Elem, item.Outline())
		}
		return out
	case ValueMap:
		out := &typing.Outline{Shape: datum.MapShape, Closed: true, Inferred: true, Members: make(map[string]*typing.Member, len(v.Names))}
		for i, k := range v.Names {
			out.Members[k.Name] = &typing.Member{Outline: v.Elems[i].Outline(), Required: true}
		}
		return out
	}
	return typing.Of(v.Scalar)
}
