// Package budget shares the memory of a node among runs, requests and replies of services. What
// would not fit waits or is refused, so the process stays within its limit.
//
// It imports nothing of the engine.
package budget
