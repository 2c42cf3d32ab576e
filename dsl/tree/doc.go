// Package tree has the parts of a loaded definition as Go structs. A [Bundle] is the whole definition, with its
// flows, pipelines, stages and handlers. The structs are the language: their comments are its reference, and
// their tags say what files may contain. Checks store their results in fields that no file can set.
//
// A [Type] adds a handler type. The language itself has none.
package tree
