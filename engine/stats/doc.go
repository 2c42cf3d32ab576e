// Package stats counts what a node sees: its handlers, what stands still and for what, and the metrics
// that tell it.
package stats
