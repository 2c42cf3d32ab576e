// Package core decides what a run does next. A [Run] is one event's way through a plan. It reads
// no clock, starts no goroutine and does no I/O: the caller tells it what happened and asks what
// may start. Where to look first:
//
//   - run.go has the types: a run is its progress, decisions about it, and what is under way;
//   - ready.go goes through the stages, and attempt.go decides whether a handler may start: by switches,
//     by its conditions and by the guard;
//   - outcome.go takes results, onerror.go says what follows from errors, and retry.go when a call
//     is repeated;
//   - deadline.go ends what has a deadline;
//   - each.go repeats handlers for items, call.go runs pipelines inside of others, and await.go waits
//     for events;
//   - compensate.go undoes what a run has done that gives up, and toundo.go tells what that is;
//   - keys.go makes the keys of calls and the ids of events;
//   - scope.go gives expressions what they read, and sets the shared state;
//   - extent.go bounds what one run may become;
//   - checkpoint.go writes checkpoints, and resume.go goes on from them.
package core
