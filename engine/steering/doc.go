// Package steering says what holds at the paths of a definition: it shows how handlers and
// services do, lets operators switch, hold and limit them, decides with the other nodes what
// falls back, and wakes runs that wait for what has been lifted.
package steering
