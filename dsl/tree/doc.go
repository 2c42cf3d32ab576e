// Package tree has the parts of a loaded definition as Go structs. A [Bundle] is the whole definition, with its flows,
// pipelines, stages and handlers. Checks store their results in fields that no file can set. A [Type] adds a handler
// type. The language itself has none.
//
// The structs are the language. JSON Schema, decoding, checks and "procaas explain" come from them. Their comments are the
// reference. The types of their fields are the types of values, and tags constrain them: yaml names the field. required,
// enum, default, min, max and pattern constrain it, or the elements of a list. kind says what a Value must be, and
// expr:"no" forbids expressions in it. words lists words that may replace a
// mapping: the field Word has the word.
package tree

import "procaas/dsl/spec"

// places has the positions of a struct's fields. It is unexported, so comparing and printing structs ignore it.
type places = spec.Places

// added has the fields of add-ons. It is unexported like places.
type added = spec.Added
