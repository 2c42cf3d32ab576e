package model

// A Lane is what has a share of something that many want: a pipeline shares the part of its owner,
// and a source of events the part of its pipeline.
type Lane struct{ Owner, Pipeline, Source string }

// LaneOf returns the lane of an event of a pipeline. The owner may be empty.
func LaneOf(owner, pipeline string, ev *Event) Lane {
	l := Lane{Owner: owner, Pipeline: pipeline, Source: ev.Source}
	if ev.Inner {
		l.Source = "" // each emitting run is a source of its own
	}
	if l.Owner == "" {
		l.Owner = "/" + pipeline // no owner has such a name
	}
	return l
}
