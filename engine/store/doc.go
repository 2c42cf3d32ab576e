// Package store says what the engine needs of a store: small interfaces, and what goes through
// them. They speak of events, runs and checkpoints, and no SQL leaks through them. Every method is safe
// for concurrent use, and every change is atomic and durable before the method returns.
//
// [Store] is all of them. Whoever needs less takes the interface that has it, such as [Runs] or
// [TaskQueue]. The folders postgres, sqlite, cells and memory implement them.
package store
