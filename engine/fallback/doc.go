// Package fallback takes handlers that fail out of the flow, and back. Nodes count what calls come to
// (tally.go); one of them decides for all, once a second (decide.go); each knows what was decided (live.go).
// The decision itself is fallback.go, service.go, state.go and count.go, which do no I/O and read no clock.
package fallback
