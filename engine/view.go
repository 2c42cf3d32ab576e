package engine

import "time"

// A RunView is a run as people and programs see it through the API.
type RunView struct {
	ID          string         `json:"id"`
	Pipeline    string         `json:"pipeline"`
	Flow        string         `json:"flow"`
	Key         string         `json:"key"`
	Status      Status         `json:"status"`
	Event       EventView      `json:"event"`
	SharedState map[string]any `json:"shared_state"`
	Handlers    []HandlerView  `json:"handlers"`
	Bundle      string         `json:"bundle,omitempty"`
	Generation  int            `json:"generation"`
	Blocked     bool           `json:"blocked"`
	Accepted    time.Time      `json:"accepted"`
	Started     *time.Time     `json:"started"`
	Finished    *time.Time     `json:"finished"`
	Due         *time.Time     `json:"due,omitempty"`
	FailedPath  string         `json:"failed_handler,omitempty"`
	Error       string         `json:"error,omitempty"`
	Reason      string         `json:"reason,omitempty"`
}

// An EventView is the event of a run.
type EventView struct {
	ID      string    `json:"id"`
	Source  string    `json:"source"`
	Type    string    `json:"type"`
	Time    time.Time `json:"time"`
	Key     string    `json:"key,omitempty"`
	Payload any       `json:"payload"`
}

// A HandlerView is what became of one handler in a run.
type HandlerView struct {
	Path     string     `json:"path"`
	Outcome  string     `json:"outcome"` // succeeded failed skipped running waiting unknown
	Attempts int        `json:"attempts"`
	Started  *time.Time `json:"started"`
	Finished *time.Time `json:"finished"`
	Error    string     `json:"error,omitempty"`
	Reason   string     `json:"reason,omitempty"`
}

// View makes a record readable. A checkpoint that cannot be read is told in the
// view's Error, never lost.
func View(r RunRecord) RunView { panic("engine: View is not written yet") }

// An EntityView is a key of a flow as people and programs see it.
type EntityView struct {
	Flow        string         `json:"flow"`
	Key         string         `json:"key"`
	State       string         `json:"state"`
	SharedState map[string]any `json:"shared_state"`
	Blocked     bool           `json:"blocked"`
	BlockedBy   string         `json:"blocked_by,omitempty"`
	Waiting     int            `json:"waiting"`
	Runs        []RunView      `json:"runs"`
}
