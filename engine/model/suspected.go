package model

// SuspectedFrom is how many nodes in a row must die while they own a run that makes no progress,
// before the run is suspected. The first death is usually an ordinary crash or a deployment, and
// may cause the second.
const SuspectedFrom = 2

// Suspected reports whether a run with this many losses may be what kills its nodes.
func Suspected(losses int) bool { return losses >= SuspectedFrom }

// ClassQuarantined is the error class of a quarantined run.
const ClassQuarantined = "quarantined"

// ClassDamaged is the error class of a run whose row in the store cannot be read.
const ClassDamaged = "damaged"

// ClassKept is the class of a run whose event is kept for another run of its key, which may take it. Until its time it has no place in
// the order of its key. It keeps the class when it has come back, until it begins.
const ClassKept = "kept"

// ClassUnserved is the error class of a run whose event has no pipeline yet.
const ClassUnserved = "unserved"
