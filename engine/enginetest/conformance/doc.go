// Package conformance checks that stores keep the promises of their ports, also when they crash,
// when the disk is full, and under load. It also measures them.
package conformance
