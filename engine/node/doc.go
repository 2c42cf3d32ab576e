// Package node drives runs: it makes a process a member of those that share a store, claims runs,
// gives the pure core of each time, calls and checkpoints, and leaves when it is to stop.
package node
