// Package records makes what the store has of runs and of changes readable, does to runs what
// operators want, and forgets what is old.
package records
