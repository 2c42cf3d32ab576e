package wire

import "time"

// A TriggerRun is the body of the call that fires a trigger now.
type TriggerRun struct {
	ID     string `json:"id,omitempty" maxLength:"150" doc:"Makes the firing unique: a second call with the same id fires nothing. The default is a new id."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit."`
}

// A TriggerBackfill is the body of the call that fires a trigger for due times in the past.
type TriggerBackfill struct {
	From      time.Time `json:"from" want:"want the time of the first firing, such as 2026-11-21T00:00:00Z" doc:"The first due time may be this one."`
	To        time.Time `json:"to,omitzero" doc:"The last due time is before this one. The default is now."`
	DryRun    bool      `json:"dry_run,omitempty" doc:"true fires nothing, and says which due times would."`
	Forgotten bool      `json:"forgotten,omitempty" doc:"true also fires due times that are so old that the store may have forgotten that they ran."`
	Reason    string    `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit."`
}
