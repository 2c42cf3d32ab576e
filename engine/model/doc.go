// Package model has the values that handlers, stores and the core of a run share: events, results,
// classes of errors, statuses and changes of runs, notices, and their data. It does no I/O and does
// not know plans.
package model
