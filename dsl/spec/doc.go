// Package spec describes mappings by Go structs: the comments of a struct are its reference,
// its tags the constraints and defaults of its fields, the types of its fields what values
// must be. [Of] turns a struct into a [Spec]; decoding, checks, JSON Schema and the texts of
// the command line come from that. It knows no struct of the language.
package spec
