package rest

import (
	"fmt"
	"hash/crc32"
	"strings"

	"procaas/engine/api/problem"
)

// Cursors of stores are positions, so that almost any text is one. Those that callers
// get carry a check sum over the position and what it is of: text that was made up or
// cut, and the cursor of another list, are refused instead of giving some other page.
// It is no secret, since who can list may see every page anyhow.

// The lists that cursors are of.
const (
	CursorRuns  = "runs"  // newest first
	CursorWalk  = "walk"  // of an operator through runs, the first accepted first
	CursorAudit = "audit" // newest first
)

// SealCursor makes the cursor that callers get of one of a store; empty stays empty.
func SealCursor(list, position string) string {
	if position == "" {
		return ""
	}
	return position + "." + cursorSum(list, position)
}

// OpenCursor is the reverse. ok is false for what SealCursor has not made of this list.
func OpenCursor(list, cursor string) (position string, ok bool) {
	if cursor == "" {
		return "", true
	}
	at := strings.LastIndexByte(cursor, '.')
	if at <= 0 || cursor[at+1:] != cursorSum(list, cursor[:at]) {
		return "", false
	}
	return cursor[:at], true
}

func cursorSum(list, position string) string {
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(list+":"+position)))
}

// A PageQuery chooses a page of a list.
type PageQuery struct {
	Cursor string `query:"cursor" bytes:"512" doc:"Where the page begins: next of the previous page."`
}

// Position returns the place in a list where the page begins.
func (q *PageQuery) Position(list string) (string, error) {
	position, ok := OpenCursor(list, q.Cursor)
	if !ok {
		return "", NoCursor(list)
	}
	return position, nil
}

// NoCursor refuses what is no cursor of a list.
func NoCursor(list string) error {
	return problem.Parameter([]problem.Fault{{Location: "query/cursor", Message: WrongCursor(list)}})
}

// WrongCursor says what a cursor of a list has to be.
func WrongCursor(list string) string {
	if list == CursorWalk {
		return "want next of the call before"
	}
	return "want next of another page of this list"
}
