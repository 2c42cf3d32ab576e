// Package source reads one file: bytes become YAML nodes, and nodes become values
// ([expr.Value]) whose every part knows its place. What YAML allows and the language does
// not is reported here, and so are the slips that YAML makes of expressions. What is
// of the first version of the language becomes an expression of the second (v1.go).
//
// It knows no field of the language: package decode holds values against those.
package source
