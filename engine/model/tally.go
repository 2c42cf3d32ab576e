package model

// A Tally counts the calls of a handler that ended in one second, on all nodes. It does not count
// calls that began before the current phase of the handler's outage, because they describe an
// earlier time. It does not count calls that say nothing about the service, such as cancelled ones.
type Tally struct {
	Path   string
	Second int64 // Unix time, by the store's clock
	Good   int   // calls that succeeded
	Bad    int   // calls whose errors count against the handler
}
