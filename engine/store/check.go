package store

// These are the levels of a [Check].
const (
	CheckFine    = "fine"
	CheckWarning = "warning" // nodes work, and something is slower or riskier than it need be
	CheckRefused = "refused" // a node cannot work with this store
)

// A Check is one thing that a store needs of its server or its file, and what came of trying it.
type Check struct {
	Name   string `json:"check"`
	Level  string `json:"level"`            // fine, warning or refused
	Found  string `json:"found"`            // what is there
	Remedy string `json:"remedy,omitempty"` // what to do; empty if it is fine
}
