// Package planner turns pipelines into plans: for each handler, what it reads, writes and
// touches, and so which handlers of a stage may run in parallel. Plans never change.
package planner
