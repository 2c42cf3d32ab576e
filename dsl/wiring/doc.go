// Package wiring finds out what starts and continues which pipelines: events, calls and triggers. It checks that each
// leads somewhere, that the automata of flows are deterministic and end, and that nothing goes round for ever.
package wiring
