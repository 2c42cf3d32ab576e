package rest

import (
	"fmt"
	"hash/crc32"
	"strings"

	"procaas/engine/api/problem"
)

// Cursors of stores are positions, so almost any text would be valid. Callers get cursors with a
// checksum over the position and its list. So invented or shortened text, and cursors of other
// lists, are refused instead of returning a wrong page. The checksum is not a secret, because a
// caller who may list may see every page.

// These are the lists with cursors.
const (
	CursorRuns  = "runs"  // newest first
	CursorWalk  = "walk"  // of an operator's walk through runs, oldest first
	CursorAudit = "audit" // newest first
)

// SealCursor makes a caller's cursor from one of a store. Empty stays empty.
func SealCursor(list, position string) string {
	if position == "" {
		return ""
	}
	return position + "." + cursorSum(list, position)
}

// OpenCursor reverses SealCursor. ok is false for any other text.
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

// Position returns the position where the page begins.
func (q *PageQuery) Position(list string) (string, error) {
	position, ok := OpenCursor(list, q.Cursor)
	if !ok {
		return "", NoCursor(list)
	}
	return position, nil
}

// NoCursor returns the problem of an invalid cursor.
func NoCursor(list string) error {
	return problem.Parameter([]problem.Fault{{Location: "query/cursor", Message: WrongCursor(list)}})
}

// WrongCursor says what a cursor of a list must be.
func WrongCursor(list string) string {
	if list == CursorWalk {
		return "want next of the call before"
	}
	return "want next of another page of this list"
}
