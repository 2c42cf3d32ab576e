// Package diag has the types for findings: positions in files, diagnostics, and suggestions for mistyped words.
// It knows neither YAML nor expressions.
package diag
