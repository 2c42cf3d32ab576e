// Package handlers has the built-in handler types, one file each.
//
// A handler type is a Go struct. Its comment and those of its fields are its documentation. The
// tags are its constraints and defaults, and the field types are the types of values. Decoding,
// checks, the JSON Schema and the reference in README.md all come from that struct.
//
// To add one, write a file named after the key of the type in pipelines. It has a struct that
// implements [engine.Handler], with an indented example in its comment. Add a line to [All], and
// run "go test ./handlers -update" to write the reference. A type that needs checks beyond its tags
// has a method CheckBody(*tree.Body).
package handlers
