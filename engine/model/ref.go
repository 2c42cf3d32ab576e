package model

import (
	"strconv"
	"strings"
)

// RefOf returns the name of a handler in a run, or of an item of its for-each, numbered from 1.
func RefOf(path string, item int) string {
	if item == 0 {
		return path
	}
	return path + "[" + strconv.Itoa(item-1) + "]"
}

// IsRefOf reports whether a ref names a handler or an item of its for-each.
func IsRefOf(ref, path string) bool {
	return strings.HasPrefix(ref, path) && (len(ref) == len(path) || ref[len(path)] == '[')
}

// IntoCall follows each call in a [core.Attempt.Ref] that the task is inside of.
const IntoCall = ">"

// PathOf returns the path of the handler that a ref names.
func PathOf(ref string) string {
	path, _, _ := strings.Cut(ref[strings.LastIndex(ref, IntoCall)+1:], "[")
	return path
}

// UndoPath is appended to the path of a handler to form that of its compensation.
const UndoPath = "/compensate"

// IsUndo reports whether a path is that of a compensation. A handler may have the id compensate.
func IsUndo(path string) bool {
	return strings.HasSuffix(path, UndoPath) && strings.Count(path, "/") > 2
}

// CancelReason is the reason of runs for which the store does not keep the operator's reason.
const CancelReason = "cancelled by an operator"

// PipelineOf is the first part of a path.
func PipelineOf(path string) string {
	pipeline, _, _ := strings.Cut(path, "/")
	return pipeline
}

// SplitPath returns the pipeline, the stage and the handler of a path. Missing parts are empty.
func SplitPath(path string) (parts [3]string) {
	copy(parts[:], strings.SplitN(path, "/", 3))
	return parts
}
