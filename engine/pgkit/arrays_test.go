package pgkit

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// The server gets the bytes that pgx itself would send.
func TestArraysAreThoseOfTheDriver(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	text := func() string { return strings.Repeat("é", r.IntN(40)) + "x"[:r.IntN(2)] }
	for range 500 {
		n := r.IntN(6)
		texts, nulls, blobs := make([]string, n), make(pgtype.FlatArray[*string], n), make(pgtype.FlatArray[[]byte], n)
		for i := range n {
			texts[i] = text()
			if r.IntN(3) > 0 {
				nulls[i] = new(text())
			}
			if r.IntN(3) > 0 {
				blobs[i] = []byte(text())
			}
		}
		for _, c := range []struct {
			oid   uint32
			value any
		}{
			{pgtype.TextArrayOID, texts}, {pgtype.TextArrayOID, nulls}, {pgtype.ByteaArrayOID, blobs}, {pgtype.TextArrayOID, []string(nil)},
			{pgtype.ByteaArrayOID, pgtype.FlatArray[[]byte](nil)}, {pgtype.TextArrayOID, [][]string{texts, texts}}, {pgtype.ByteaArrayOID, [][]byte(blobs)},
		} {
			plain, plans := pgtype.NewMap(), pgtype.NewMap()
			WriteArraysPlainly(plain)
			for _, format := range []int16{pgtype.BinaryFormatCode, pgtype.TextFormatCode} {
				have, err := plain.Encode(c.oid, format, c.value, []byte("before"))
				want, wantErr := plans.Encode(c.oid, format, c.value, []byte("before"))
				if (err == nil) != (wantErr == nil) || (have == nil) != (want == nil) || !bytes.Equal(have, want) {
					t.Fatalf("%#v in format %d: want %q, %v; have %q, %v", c.value, format, want, wantErr, have, err)
				}
			}
		}
	}
}

// A batch is written into memory of its size, and no element takes memory of its own.
func TestArraysTakeTheirMemoryAtOnce(t *testing.T) {
	checkpoints := make(pgtype.FlatArray[[]byte], 64)
	ids := make([]string, len(checkpoints))
	for i := range checkpoints {
		checkpoints[i], ids[i] = make([]byte, 400), strings.Repeat("i", 26)
	}
	m := pgtype.NewMap()
	WriteArraysPlainly(m)
	for _, c := range []struct {
		oid   uint32
		value any
	}{{pgtype.ByteaArrayOID, checkpoints}, {pgtype.TextArrayOID, ids}} {
		allocs := testing.AllocsPerRun(20, func() {
			if _, err := m.Encode(c.oid, pgtype.BinaryFormatCode, c.value, nil); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > 1 {
			t.Errorf("%T: want one piece of memory, have %v", c.value, allocs)
		}
	}
}
