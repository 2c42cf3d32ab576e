// Package diag holds what every part of the language reports with: places in files, findings, and
// suggestions for mistyped words. It knows neither YAML nor expressions.
package diag
