// Package source reads one file. Bytes become YAML nodes, and nodes become values ([expr.Value]) whose every
// part has a position. It reports what YAML allows but the language does not, and expressions that YAML
// misreads. Operators of the first version of the language become expressions of the second (v1.go).
//
// It does not know the fields of the language. Package decode checks values against those.
package source
