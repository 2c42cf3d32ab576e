// Package spec describes mappings by Go structs. The comments of a struct are its reference. Its tags are
// constraints and defaults, and the types of its fields are the types of values. [Of] turns a struct into a
// [Spec] for decoding, checks, JSON Schema and help texts. The package knows no struct of the language.
package spec
