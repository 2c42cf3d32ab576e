// Package node drives runs. It makes a process a member of the cluster of nodes that share a store.
// The node claims runs. It gives the pure core of each run time, calls and checkpoints. It drains
// before it stops.
package node
