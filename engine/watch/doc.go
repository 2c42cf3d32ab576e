// Package watch wakes those who wait for runs: for the end, or for each step of a run.
//
// It costs the store the same however many wait. A run that this node drives is looked at when
// the node lets go of it, or has saved a step. All others are asked about together, a bounded
// number at a bounded pace: that finds the ends of runs that other nodes drive, and of those
// that a node has taken over from a dead one.
//
// It knows the ports of the store and how runs are shown, and nothing of how they are driven.
package watch
