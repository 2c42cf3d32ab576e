package store

import (
	"errors"
	"fmt"
	"time"
)

// A backup that was restored is an earlier state of the store. Nodes that ran before have seen what
// it lacks: see [Membership]. A node that starts has seen nothing. So the store remembers where
// nodes last wrote, and a start is refused elsewhere, until an operator adopts the state.

var (
	// ErrRestored begins the error about a store that was restored or copied, and that no operator
	// has adopted.
	ErrRestored = errors.New("the store is an earlier state or a copy")

	// ErrAdopted reports that an operator has adopted the store since this process opened it. The
	// process remembers a state that is given up, so it must end.
	ErrAdopted = errors.New("an operator has adopted the store as it was restored, and this process worked with what was there before: start it again")
)

// A Restored says what is repeated if nodes continue with a store as it is.
type Restored struct {
	Why  string    `json:"why"`           // nodes refuse the store; empty if they do not
	Seen time.Time `json:"seen,omitzero"` // the last sign of a node

	Runs     []RestoredRuns    `json:"runs"`      // unfinished, by pipeline
	InFlight []RestoredRun     `json:"in_flight"` // the first that a node had
	Tasks    []RestoredTasks   `json:"tasks"`     // that workers had
	Triggers []RestoredTrigger `json:"triggers"`
}

// RestoredInFlight bounds [Restored].InFlight.
const RestoredInFlight = 1000

// RestoredRuns counts the runs of a pipeline that resume from their last checkpoint.
type RestoredRuns struct {
	Pipeline string `json:"pipeline"` // or the flow of runs that have not begun
	InFlight int    `json:"in_flight"`
	Begun    int    `json:"begun"` // and waited then, such as for a time
	Fresh    int    `json:"fresh"` // had not begun
}

// A RestoredRun was in flight.
type RestoredRun struct {
	Run      string    `json:"run"`
	Pipeline string    `json:"pipeline"`
	Key      string    `json:"key,omitempty"`
	Accepted time.Time `json:"accepted"`
}

// RestoredTasks counts the tasks of a type that workers had.
type RestoredTasks struct {
	Type  string `json:"type"`
	Tasks int    `json:"tasks"`
}

// A RestoredTrigger has fired last at a time. What it fired later, it may fire again.
type RestoredTrigger struct {
	Trigger string `json:"trigger"`
	Last    string `json:"last"`
}

// Refused returns the error of a start with a restored store, or nil if why is empty.
func Refused(why string, seen time.Time) error {
	if why == "" {
		return nil
	}
	return fmt.Errorf("%w: %s. The last sign of a node is of %s. Bring back the store that has everything, or accept this one: "+
		"procaas store adopt --dry-run lists what will be repeated", ErrRestored, why, seen.UTC().Format(time.RFC3339))
}
