// Package store defines what the engine needs from a store: small interfaces, called ports, and
// their data. They use events, runs and checkpoints, never SQL. Every method is safe for concurrent
// use. Every change is atomic, and durable before the method returns.
//
// A [Store] has a field for each port. Code that needs one concern takes only its port, such as
// [Runs] or [TaskQueue]. The packages postgres, sqlite, cells and memory implement stores. Their
// method Ports returns the [Store].
package store
