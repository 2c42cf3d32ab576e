// Package words writes what pages of the console say: numbers with their units, times, durations, addresses,
// JSON that folds, and the difference between two values.
//
// It knows nothing of pages. It may import what it writes of, which is model, explain and dsl/expr.
package words
