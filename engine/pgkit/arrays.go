package pgkit

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"
)

// WriteArraysPlainly lets a connection write arrays of texts and of bytes without a look at the type
// of each element, and into memory that has their size. They are most of what a batch sends. The
// server gets the same bytes.
func WriteArraysPlainly(m *pgtype.Map) {
	for _, oid := range []uint32{pgtype.TextArrayOID, pgtype.ByteaArrayOID} {
		if t, ok := m.TypeForOID(oid); ok {
			if codec, ok := t.Codec.(*pgtype.ArrayCodec); ok {
				m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: plainArrays{codec}})
			}
		}
	}
}

// plainArrays are the arrays of one element type. Other values than those of PlanEncode are written as
// before.
type plainArrays struct{ *pgtype.ArrayCodec }

// PlanEncode implements [pgtype.Codec].
func (c plainArrays) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		element := c.ElementType.OID
		switch value.(type) {
		case []string:
			return encodeTexts{element}
		case pgtype.FlatArray[*string]:
			return encodeNullTexts{element}
		case pgtype.FlatArray[[]byte]:
			return encodeBytes{element}
		}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// These write arrays. They have the type of the elements.
type (
	encodeTexts     struct{ element uint32 }
	encodeNullTexts struct{ element uint32 }
	encodeBytes     struct{ element uint32 }
)

// Encode implements [pgtype.EncodePlan].
func (e encodeTexts) Encode(value any, b []byte) ([]byte, error) {
	list, _ := value.([]string)
	return appendArray(b, e.element, len(list), func(i int) (string, bool) { return list[i], true }), nil
}

// Encode implements [pgtype.EncodePlan].
func (e encodeNullTexts) Encode(value any, b []byte) ([]byte, error) {
	list, _ := value.(pgtype.FlatArray[*string])
	return appendArray(b, e.element, len(list), func(i int) (string, bool) {
		if list[i] == nil {
			return "", false
		}
		return *list[i], true
	}), nil
}

// Encode implements [pgtype.EncodePlan].
func (e encodeBytes) Encode(value any, b []byte) ([]byte, error) {
	list, _ := value.(pgtype.FlatArray[[]byte])
	return appendArray(b, e.element, len(list), func(i int) ([]byte, bool) { return list[i], list[i] != nil }), nil
}

// appendArray appends an array of n elements as the server reads it: dimensions, whether an element is
// null, the type of the elements, the length and the first index, and the elements with their lengths.
// The function at returns false for null.
func appendArray[T string | []byte](b []byte, element uint32, n int, at func(i int) (T, bool)) []byte {
	const word = 4 // bytes
	size, hasNull := (5+n)*word, uint32(0)
	for i := range n {
		v, ok := at(i)
		size += len(v)
		if !ok {
			hasNull = 1
		}
	}
	b = slices.Grow(b, size)
	for _, head := range [...]uint32{1, hasNull, element, uint32(n), 1} {
		b = binary.BigEndian.AppendUint32(b, head)
	}
	for i := range n {
		v, ok := at(i)
		if !ok {
			b = binary.BigEndian.AppendUint32(b, math.MaxUint32)
			continue
		}
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
	}
	return b
}
