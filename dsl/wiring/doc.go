// Package wiring finds what starts and continues which pipelines: events, calls and triggers. It checks that
// each has a target, that automata are deterministic and end, and that no loop is endless.
package wiring
