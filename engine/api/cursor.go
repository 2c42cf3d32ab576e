package api

import (
	"fmt"
	"hash/crc32"
	"strings"
)

// Cursors of stores are positions, so that almost any text is one. Those that callers
// get carry a check sum over the position and what it is of: text that was made up or
// cut, and the cursor of another list, are refused instead of giving some other page.
// It is no secret, since who can list may see every page anyhow.

// The lists that cursors are of.
const (
	cursorRuns  = "runs"  // newest first
	cursorWalk  = "walk"  // of an operator through runs, the first accepted first
	cursorAudit = "audit" // newest first
)

// sealCursor makes the cursor that callers get of one of a store; empty stays empty.
func sealCursor(list, position string) string {
	if position == "" {
		return ""
	}
	return position + "." + cursorSum(list, position)
}

// openCursor is the reverse. ok is false for what sealCursor has not made of this list.
func openCursor(list, cursor string) (position string, ok bool) {
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

// cursor reads the member of that name.
func (f *fields) cursor(list string) string {
	position, ok := openCursor(list, f.label("cursor", maxCursor))
	if !ok {
		f.fault("cursor", "%s", wrongCursor(list))
	}
	return position
}

// wrongCursor says what a cursor of a list has to be.
func wrongCursor(list string) string {
	if list == cursorWalk {
		return "want next of the call before"
	}
	return "want next of another page of this list"
}
