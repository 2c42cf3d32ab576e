// Package node drives runs. It makes a process a member of the cluster of nodes that share a store.
// The node claims runs. It provides time, calls and checkpoints for the pure core of each run. It
// drains before it stops.
package node
