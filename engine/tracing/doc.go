// Package tracing makes the spans of runs, and parses and formats the trace contexts of events and
// calls.
package tracing
