// Package contracts compiles JSON Schemas and OpenAPI documents ([Set]) and checks data against them: constant
// data before anything runs, other data at run time. A [Contract] also has the type of data that fits it, for
// the checks of expressions.
//
// The package knows files and values, but no parts of a pipeline.
package contracts
