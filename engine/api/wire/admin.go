package wire

import (
	"time"

	"procaas/engine/credentials"
)

// A Reload says how pipelines are read again.
type Reload struct {
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Why, for the audit."`
	Drop   bool   `json:"drop,omitempty" doc:"Cancel accepted events that wait for pipelines that are gone. Otherwise such pipelines are refused."`
}

// A NewToken is the body that makes a token.
type NewToken struct {
	Name    string    `json:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$" by:"engine" doc:"What the audit calls its bearer."`
	Role    string    `json:"role" enum:"viewer,submitter,worker,operator,admin" by:"engine" doc:"viewer reads, submitter submits events and tasks, worker does tasks, operator does all that and steers runs and controls, admin does everything."`
	Paths   []string  `json:"paths,omitempty" maxItems:"100" by:"engine" doc:"Of an operator or submitter: what it is bound to, such as pipeline or pipeline/stage. Of a worker: types of tasks."`
	Expires time.Time `json:"expires,omitzero" doc:"When it is good no more: in 90 days when it is left out."`
	Forever bool      `json:"forever,omitempty" doc:"It never expires."`
	Reason  string    `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit."`
}

// A MadeToken is a new token, told this once.
type MadeToken struct {
	credentials.TokenView
	Secret string `json:"token" doc:"What to send as Authorization: Bearer TOKEN. It is told this once, and kept nowhere."`
}

// An InboxMoveRequest asks for a move of slots.
type InboxMoveRequest struct {
	Slots  string   `json:"slots" doc:"The slots, all of one cell: numbers and spans." example:"0-2047"`
	To     string   `json:"to" doc:"The cell that gets them."`
	Wait   Duration `json:"wait,omitempty" doc:"How long runs under way get to end or to pause, while nothing of the slots is taken in; 10s when it is left out, at most 5m."`
	DryRun bool     `json:"dry_run,omitempty" doc:"Only say what would be done."`
	Reason string   `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit."`
}

// An InboxRemovalRequest asks for a database to leave the inbox.
type InboxRemovalRequest struct {
	Cell   string `json:"cell" doc:"The database." example:"b"`
	Forget bool   `json:"forget,omitempty" doc:"Let it go although it has runs that have ended, which are in no list any more then; also when it cannot be reached."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit."`
}

// A Health says that a process is alive or ready.
type Health struct {
	Status  string `json:"status" enum:"ok,ready" doc:"ok: the process is alive; ready: it takes events and runs them."`
	Version string `json:"version" doc:"The version of the program."`

	Degraded string `json:"degraded,omitempty" doc:"What does not work although the node does, for people."`
}
