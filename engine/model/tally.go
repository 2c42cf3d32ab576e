package model

// A Tally is how many calls of a handler ended in one second, on all nodes. Calls
// that began before the present phase of the handler's outage do not count:
// they tell of another time. Nor do those that say nothing about the service,
// such as calls that were cancelled or never made.
type Tally struct {
	Path   string
	Second int64 // Unix time, by the store's clock
	Good   int   // calls that succeeded
	Bad    int   // calls whose errors count against the handler
}
