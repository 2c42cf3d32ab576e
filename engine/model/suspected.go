package model

// SuspectedFrom is how many nodes in a row must have died while they had a run, before it got any further, for the
// run to be suspected. The first death is mostly an honest crash or a deploy, and the second one may follow from it.
const SuspectedFrom = 2

// Suspected reports whether a run with this many losses may be what brings its nodes down.
func Suspected(losses int) bool { return losses >= SuspectedFrom }

// ClassQuarantined is the class of the error of a run that has been quarantined.
const ClassQuarantined = "quarantined"

// ClassUnserved is the class of the error of a run that waits for a pipeline for its event.
const ClassUnserved = "unserved"
