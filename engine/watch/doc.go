// Package watch wakes callers that wait for the end of a run, or for each of its steps.
//
// The load on the store does not depend on the number of callers. A run that this node drives is
// read when the node releases it or has saved a step. All other runs are read together, a bounded
// number at a bounded rate. This finds the ends of runs that other nodes drive.
//
// The package knows the ports of the store and the views of runs, but not how runs are driven.
package watch
