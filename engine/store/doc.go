// Package store says what the engine needs of a store: small interfaces, its ports, and what goes
// through them. They speak of events, runs and checkpoints, and no SQL leaks through them. Every
// method is safe for concurrent use, and every change is atomic and durable before the method returns.
//
// A [Store] has a field for each port. Whoever needs one concern takes its port, such as [Runs] or
// [TaskQueue]. The folders postgres, sqlite, cells and memory have stores: Ports gives one's [Store].
package store
