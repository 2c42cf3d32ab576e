// Package core decides what a run does next. A [Run] is one event's way through a plan. It reads
// no clock, starts no goroutine and does no I/O: the caller tells it what happened and asks what
// may start. Where to look first:
//
//   - attempt.go decides whether a handler may start, and retry.go when it is repeated;
//   - outcome.go takes results, and onerror.go what follows from errors;
//   - compensate.go undoes what a run has done that gives up;
//   - scope.go gives expressions what they read, and sets the shared state;
//   - extent.go bounds what one run may become;
//   - resume.go writes checkpoints and goes on from them.
package core
