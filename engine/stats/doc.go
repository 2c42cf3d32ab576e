// Package stats counts what a node sees: its handlers, what stands still and why. It has the
// metrics.
package stats
