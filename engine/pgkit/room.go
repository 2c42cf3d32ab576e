package pgkit

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// MakeRoom takes the memory for what a batch sends, for a connection. A connection forgets its memory after
// each larger batch, and would double it several times until the next one fits.
func MakeRoom(c *pgx.Conn, b *pgx.Batch) {
	size := 0
	for _, q := range b.QueuedQueries {
		size += 64 // names, and the heads of its messages
		for _, a := range q.Arguments {
			size += sizeOf(a)
		}
	}
	c.PgConn().Frontend().Send(room(size))
}

// sizeOf returns how many bytes an argument takes, roughly if it is not one of the large ones.
func sizeOf(argument any) (size int) {
	const head = 24 // of an array
	switch v := argument.(type) {
	case string:
		return len(v) + 4
	case []string:
		for _, s := range v {
			size += len(s) + 4
		}
		return size + head
	case pgtype.FlatArray[[]byte]:
		for _, s := range v {
			size += len(s) + 4
		}
		return size + head
	case []int64:
		return 12*len(v) + head
	case []bool:
		return 5*len(v) + head
	}
	return head
}

// A room is a message of no bytes that takes memory for those after it.
type room int

// Frontend implements [pgproto3.FrontendMessage].
func (room) Frontend() {}

// Encode implements [pgproto3.Message].
func (r room) Encode(b []byte) ([]byte, error) { return slices.Grow(b, int(r)), nil }

// Decode implements [pgproto3.Message]. No server gets a room, and none sends one.
func (room) Decode([]byte) error { return errors.New("a room is never sent") }
