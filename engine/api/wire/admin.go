package wire

import (
	"time"

	"procaas/engine/credentials"
)

// A Reload says how pipelines are read again.
type Reload struct {
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for the audit."`
	Drop   bool   `json:"drop,omitempty" doc:"true cancels accepted events that wait for removed pipelines. Otherwise the server refuses to remove these pipelines."`
}

// A Rollback says which version becomes current again.
type Rollback struct {
	To     string `json:"to,omitempty" doc:"The version, or at least its first 4 digits. The default is the one that the current version replaced."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for the audit."`
	Drop   bool   `json:"drop,omitempty" doc:"true cancels accepted events that wait for pipelines that the version does not have."`
}

// A NewToken is the body that makes a token.
type NewToken struct {
	Name    string    `json:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$" by:"engine" doc:"The name of the bearer in the audit."`
	Role    string    `json:"role" enum:"viewer,submitter,worker,operator,admin" by:"engine" doc:"viewer reads. submitter submits events and tasks. worker takes and finishes tasks. operator does all that, and controls runs and paths. admin does everything."`
	Paths   []string  `json:"paths,omitempty" maxItems:"100" by:"engine" doc:"For an operator or submitter: the paths that it is bound to, such as pipeline or pipeline/stage. For a worker: types of tasks."`
	Expires time.Time `json:"expires,omitzero" doc:"When it expires. The default is in 90 days."`
	Forever bool      `json:"forever,omitempty" doc:"true if it never expires."`
	Reason  string    `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit."`
}

// A MadeToken is a new token, told this once.
type MadeToken struct {
	credentials.TokenView
	Secret string `json:"token" doc:"The token to send as Authorization: Bearer TOKEN. The server shows it only here."`
}

// An InboxMoveRequest asks for a move of slots.
type InboxMoveRequest struct {
	Slots  string   `json:"slots" doc:"The slots, all of one cell: numbers and ranges." example:"0-2047"`
	To     string   `json:"to" doc:"The target cell."`
	Wait   Duration `json:"wait,omitempty" doc:"How long runs in flight have to end or pause. Meanwhile events of the slots wait. The default is 10s, and the maximum 5m."`
	DryRun bool     `json:"dry_run,omitempty" doc:"true only returns the plan."`
	Reason string   `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit."`
}

// An InboxRemovalRequest asks for a database to leave the inbox.
type InboxRemovalRequest struct {
	Cell   string `json:"cell" doc:"The database." example:"b"`
	Forget bool   `json:"forget,omitempty" doc:"true removes it although it has ended runs or cannot be reached. Lists no longer show these runs."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit."`
}

// A Health says that a process is alive or ready.
type Health struct {
	Status  string `json:"status" enum:"ok,ready" doc:"ok: the process is alive. ready: it accepts and runs events."`
	Version string `json:"version" doc:"The version of the program."`

	Degraded string `json:"degraded,omitempty" doc:"Parts that do not work although the node does, for people."`
}
