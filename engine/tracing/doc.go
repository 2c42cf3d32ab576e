// Package tracing makes the spans of runs, and reads and writes the trace contexts of their events
// and calls.
package tracing
