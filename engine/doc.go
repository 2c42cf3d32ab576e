// Package engine runs events through pipelines: a pure core, and a driver that
// gives it time, calls and a durable store.
//
// # The core
//
// A [planner.Plan] is a pipeline with its proof. For each handler it knows what the
// expressions read, what the handler writes and what it touches outside; from
// that follows which handlers of a stage may run in parallel and which must keep
// the order of their declaration. [diagram.Write] shows it, with the places in the
// files that prove every wait.
//
// A [core.Run] is one event's way through a plan. It is a value that reacts: it reads
// no clock, starts no goroutine and talks to nobody.
//
//	run := core.Begin(plan, start)
//	for {
//		tasks := run.Ready(live)          // what may start now
//		save(run.Change(), run.TakeEmits()) // BEFORE the tasks start
//		if run.Status() != engine.Running {
//			return                        // ended, or parked until run.Next()
//		}
//		for _, t := range tasks {
//			go call(t, ends)              // the driver's business
//		}
//		e := <-ends
//		run.Finish(e.path, e.outcome, live)
//	}
//
// Since every change is saved before the calls that it allows, a crash may
// repeat a call but never skip one, and the repeated call carries the same
// idempotency key. [core.Resume] continues from the last checkpoint: handlers whose
// outcome is in it are never called again, those that were under way are.
//
// # What holds
//
//   - Stages run in order. Inside a stage a handler starts as soon as all that
//     it depends on is decided; there are no layers.
//   - The shared state of a run that succeeds is that of running its handlers
//     one by one as declared, in whatever order their calls end.
//   - A handler is decided once: succeeded, failed or skipped. Its result is
//     applied in the same step, all names of it or none.
//   - A critical handler that gives up fails the run, after the calls under way
//     have ended. Any other one is left behind, its fallback result in place of
//     its own.
//   - A failed run that an operator retries goes on from the critical handlers
//     that failed it; what was decided stays decided.
//   - Delays of repetitions depend on nothing but run, handler and attempt, so
//     the same history gives the same run.
//
// # Handler types
//
// A handler type is a struct that implements [Handler]; [Type] derives the rest
// from it. The struct is filled for one call, so it needs no locks, and it never
// sees an expression. The error says whether to repeat ([model.Permanent], [model.After]),
// the policy of the handler says how.
//
// # The driver
//
// A [node.Driver] claims runs from a [store.Store], drives each with the loop above, and
// shares transactions between runs. What a store must do is in package store; the
// folders postgres and sqlite do it.
//
// An [Engine] puts the parts together, and calls the handlers.
package engine
