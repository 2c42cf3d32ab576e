// Package steering answers for the paths of a definition. It shows how handlers and services do.
// Operators switch, hold and limit paths with it. It decides with the other nodes what falls back,
// and wakes runs that wait for something that is lifted.
package steering
