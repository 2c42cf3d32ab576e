// Package node drives runs. It makes a process a member of those that share a store. The node claims
// runs, gives the pure core of each time, calls and checkpoints, and drains when it is to stop.
package node
