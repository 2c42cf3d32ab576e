// Package model holds the values that handlers, stores and the core of a run speak of: events,
// results and the classes of errors, statuses and changes of runs, notices, and the data in them.
// It does no I/O and knows nothing of plans.
package model
