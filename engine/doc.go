// Package engine runs events through pipelines. It has a pure core, and a driver that hands the
// core time, calls and a durable store.
//
// # The core
//
// A [planner.Plan] is a pipeline with its dependencies. For each handler it knows what the
// expressions read, what the handler writes and what it touches outside. From this it derives which
// handlers of a stage may run in parallel and which must keep their declared order. [diagram.Write]
// shows the plan, and the place in the files that causes each wait.
//
// A [core.Run] is the way of one event through a plan. It is a value: it reads no clock, starts no
// goroutine and makes no calls.
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
// The driver saves every change before the calls that the change allows. So a crash may repeat a
// call but never skip one, and the repeated call carries the same idempotency key. [core.Resume]
// continues from the last checkpoint. It never repeats a handler whose outcome is in the
// checkpoint, and repeats those that were in flight.
//
// # Guarantees
//
//   - Stages run in order. Inside a stage, a handler starts as soon as everything that it depends
//     on is decided. There are no layers.
//   - A run that succeeds has the shared state of a run whose handlers ran one by one as declared,
//     in any order in which the calls end.
//   - A handler is decided once: succeeded, failed or skipped. Its result is applied in the same
//     step, either all of its names or none.
//   - A critical handler without attempts left fails the run after the calls in flight have ended. The run
//     continues without any other handler, and uses its fallback result.
//   - A failed run that an operator retries continues from the critical handlers that failed it.
//     Decided handlers stay decided.
//   - The delays of retries depend only on run, handler and attempt, so the same history has the
//     same run.
//
// # Handler types
//
// A handler type is a struct that implements [Handler]. [Type] derives everything else from it.
// Each call fills a new struct, so the struct needs no locks, and it never sees an expression. The
// error says whether to retry ([model.Permanent], [model.After]). The handler's policy says how.
//
// # The driver
//
// A [node.Driver] claims runs from a [store.Store], drives each with the loop above, and shares
// transactions between runs. Package store says what a store must do. The packages postgres and
// sqlite implement it.
//
// An [Engine] puts the parts together and calls the handlers.
package engine
