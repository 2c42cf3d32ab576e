// Package records makes what the store has of runs readable.
package records
