// Package planner makes plans from pipelines: what each handler reads, writes and touches, and so
// which handlers of a stage may run in parallel. Plans never change.
package planner
