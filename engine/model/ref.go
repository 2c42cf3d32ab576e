package model

import (
	"strconv"
	"strings"
)

// RefOf names a handler, or the item of its for-each with this number from 1, among those of a run.
func RefOf(path string, item int) string {
	if item == 0 {
		return path
	}
	return path + "[" + strconv.Itoa(item-1) + "]"
}

// IsRefOf reports whether a ref is of a handler, or of an item of its for-each.
func IsRefOf(ref, path string) bool {
	return strings.HasPrefix(ref, path) && (len(ref) == len(path) || ref[len(path)] == '[')
}

// IntoCall stands in a [core.Attempt.Ref] behind each call that the task is inside of.
const IntoCall = ">"

// PathOf returns the path of the handler that a ref names.
func PathOf(ref string) string {
	path, _, _ := strings.Cut(ref[strings.LastIndex(ref, IntoCall)+1:], "[")
	return path
}

// UndoPath stands behind the path of a handler in that of its compensation.
const UndoPath = "/compensate"

// CancelReason is for runs whose operator's reason the store does not keep.
const CancelReason = "cancelled by an operator"

// PipelineOf is the first part of a path.
func PipelineOf(path string) string {
	pipeline, _, _ := strings.Cut(path, "/")
	return pipeline
}

// SplitPath returns the pipeline, the stage and the handler of a path; empty for
// what it does not have.
func SplitPath(path string) (parts [3]string) {
	copy(parts[:], strings.SplitN(path, "/", 3))
	return parts
}
