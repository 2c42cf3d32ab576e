// Package contracts makes JSON Schemas and OpenAPI documents ready ([Set]), and holds data
// against them: before anything runs what is fixed, at run time what comes. A [Contract] also
// tells what is known of data that fits it, which expressions are checked against.
//
// It knows files and values, and no part of a pipeline.
package contracts
