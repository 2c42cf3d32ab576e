// Package fallback takes failing handlers out of the flow, and brings them back. Nodes count the
// outcomes of calls (tally.go). One node decides for all, once a second (decide.go). Each node
// reads the decisions (live.go). The decision itself does no I/O and reads no clock. It is in
// fallback.go, service.go, state.go and count.go.
package fallback
