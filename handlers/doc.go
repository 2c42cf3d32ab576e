// Package handlers holds the built-in handler types, one file each.
//
// A handler type is a Go struct: its comment and those of its fields are its
// documentation, the tags its constraints and defaults, the types of its fields
// the types that values must have. Decoding, checks, the JSON Schema and the
// reference in README.md all come from that struct, so nothing is said twice.
//
// To add one, write a file named after the key by which pipelines will name the
// type, with a struct that implements [engine.Handler] and an example, indented,
// in its comment; add a line to [All]; run "go test ./handlers -update" to
// write the reference. A type that needs checks beyond its tags has a method
// CheckBody(*tree.Body).
package handlers
