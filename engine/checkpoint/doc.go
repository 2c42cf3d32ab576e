// Package checkpoint holds what is kept of a run between its steps: the form of a checkpoint,
// how it is written and read, and how people see a run by it. It knows nothing of how a run
// goes on: see package core.
package checkpoint
