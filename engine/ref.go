package engine

import (
	"strconv"
	"strings"
)

func refOf(path string, item int) string {
	if item == 0 {
		return path
	}
	return path + "[" + strconv.Itoa(item-1) + "]"
}

// isRefOf tells whether a ref is of a handler, or of an item of its for-each.
func isRefOf(ref, path string) bool {
	return strings.HasPrefix(ref, path) && (len(ref) == len(path) || ref[len(path)] == '[')
}

// intoCall stands in a [Task.Ref] behind each call that the task is inside of.
const intoCall = ">"

// pathOf gives the path of the handler that a ref names.
func pathOf(ref string) string {
	path, _, _ := strings.Cut(ref[strings.LastIndex(ref, intoCall)+1:], "[")
	return path
}

// undoPath stands behind the path of a handler in that of its compensation.
const undoPath = "/compensate"

// cancelReason is for runs whose operator's reason the store does not keep.
const cancelReason = "cancelled by an operator"
