// Package stats counts what a node sees: its handlers, and the runs that wait and why. It has the
// metrics.
package stats
