package shardmap

import (
	"encoding/binary"
	"math/bits"
)

// Hash is PostgreSQL's hashtextextended(text, 0), so that servers, clients and this program agree
// on slots. It is PostgreSQL's variant of Jenkins' lookup3 on little-endian machines.
func Hash(text string) uint64 {
	n := len(text)
	a := uint32(0x9e3779b9) + uint32(n) + 3923095
	b, c := a, a
	var tail [12]byte
	for ; len(text) >= 12; text = text[12:] {
		copy(tail[:], text)
		a += binary.LittleEndian.Uint32(tail[0:])
		b += binary.LittleEndian.Uint32(tail[4:])
		c += binary.LittleEndian.Uint32(tail[8:])
		a, b, c = mix(a, b, c)
	}
	tail = [12]byte{}
	copy(tail[:8], text)
	a += binary.LittleEndian.Uint32(tail[0:])
	b += binary.LittleEndian.Uint32(tail[4:])
	if len(text) > 8 {
		// The lowest byte of c is reserved for the length.
		tail = [12]byte{}
		copy(tail[1:], text[8:])
		c += binary.LittleEndian.Uint32(tail[0:])
	}
	b, c = final(a, b, c)
	return uint64(b)<<32 | uint64(c)
}

func mix(a, b, c uint32) (uint32, uint32, uint32) {
	a, c = (a-c)^bits.RotateLeft32(c, 4), c+b
	b, a = (b-a)^bits.RotateLeft32(a, 6), a+c
	c, b = (c-b)^bits.RotateLeft32(b, 8), b+a
	a, c = (a-c)^bits.RotateLeft32(c, 16), c+b
	b, a = (b-a)^bits.RotateLeft32(a, 19), a+c
	c, b = (c-b)^bits.RotateLeft32(b, 4), b+a
	return a, b, c
}

func final(a, b, c uint32) (uint32, uint32) {
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	c = (c ^ b) - bits.RotateLeft32(b, 24)
	return b, c
}

// HashInt is PostgreSQL's hashint8extended(n, 0), the same for smaller integers.
func HashInt(n int64) uint64 {
	low, high := uint32(n), uint32(n>>32)
	// So that a number has the same hash as bigint, integer and smallint.
	if n < 0 {
		high = ^high
	}
	a := uint32(0x9e3779b9) + 4 + 3923095
	b, c := final(a+(low^high), a, a)
	return uint64(b)<<32 | uint64(c)
}

// Buckets is how many publications enroll creates at most per map on a shard.
const Buckets = 16
