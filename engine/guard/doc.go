// Package guard decides whether a call may start now. It applies what operators switch off, hold or
// limit, the rate limits and in-flight limits of definitions, and the adaptive limit of each
// service. It starts no goroutine and reads no clock.
//
//   - controls.go interprets operators' controls, and control_check.go checks new ones.
//   - guard.go applies all limits to one call, with the rate limits of bucket.go and loop.go.
//   - lend.go shares rate limits between nodes, and lends the unused parts.
//   - in_flight.go limits calls in flight and queues the others, and shares.go whose turn it is.
//     gradient.go adapts the limit.
//   - budget.go limits retries.
package guard
