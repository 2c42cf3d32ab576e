// Package core decides what a run does next. A [Run] is one event's way through a plan. It reads no
// clock, starts no goroutine and does no I/O. The caller passes in what happened, and asks what may
// start. Start reading here:
//
//   - run.go has the state of a run. unit.go finds the handlers and items in it.
//   - ready.go advances through the stages. choose.go chooses branches. attempt.go decides whether a
//     handler may start, and guard.go applies what the node says about that.
//   - outcome.go takes the ends of attempts, and decide.go decides handlers for good. onerror.go
//     handles errors, and retry.go computes delays.
//   - save.go says what must be durable before the next calls start. status.go says what the run
//     waits for.
//   - each.go repeats handlers for items, call.go runs pipelines inside others, and await.go waits
//     for events.
//   - compensate.go undoes a run that has failed. toundo.go finds what there is to undo.
//   - keys.go makes the keys of calls and the ids of events.
//   - scope.go has the values of expressions, and sets the shared state. roots.go shows them to expressions.
//   - deadline.go says how much time is left, and overdue.go decides when there is none.
//   - extent.go limits the size of a run.
//   - checkpoint.go writes checkpoints, and resume.go resumes from them.
package core
