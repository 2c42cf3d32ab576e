// Package tree holds the parts of a loaded definition as Go structs: a [Bundle], which is
// everything that a set of files says, with its flows, pipelines, stages and handlers. The
// structs are the language: their comments are its reference, and their tags say what may
// stand in a file. What the checks make of a part stands in fields that no file has.
//
// A [Type] adds a handler type; the language itself has none.
package tree
