// Package guard decides whether a call may start now: what operators switch off, hold or limit, the
// rate limits and the bounds of calls in flight that definitions set, and the limit of a service,
// which adapts to what its calls come to. It starts no goroutine and reads no clock.
//
//   - controls.go is what operators have set, and control_check.go what they may set;
//   - guard.go asks all of them about one call, with the rate limits of bucket.go and loop.go;
//   - lend.go shares rate limits between nodes, and lends what a node does not use;
//   - gate.go bounds calls in flight, and lets those in line in, by gradient.go where the limit adapts;
//   - budget.go bounds repetitions.
package guard
