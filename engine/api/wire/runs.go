package wire

import (
	"cmp"
	"time"

	"procaas/engine/store"
)

// A Reason is the optional body of an operator's call.
type Reason struct {
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit."`
}

// A Cancellation is the optional body of the call that cancels a run.
type Cancellation struct {
	Reason     string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit. The run stores it."`
	Compensate *bool  `json:"compensate,omitempty" default:"true" doc:"true compensates the run before it ends, the latest handler first. false ends it as it is, even while it compensates."`
}

// A RunChoice says which runs to choose. The zero value chooses all.
type RunChoice struct {
	Pipeline   string    `query:"pipeline" json:"pipeline,omitempty" maxLength:"256" doc:"Only runs of this pipeline."`
	Flow       string    `query:"flow" json:"flow,omitempty" maxLength:"256" doc:"Only runs of this flow."`
	Key        string    `query:"key" json:"key,omitempty" maxLength:"1024" doc:"Only runs of this key."`
	Label      string    `query:"label" json:"label,omitempty" maxLength:"512" doc:"Only runs with these labels, with commas between them: city=berlin, or city for any value." example:"city=berlin,vip"`
	Handler    string    `query:"handler" json:"handler,omitempty" maxLength:"256" doc:"Only runs that failed in this handler, or below this pipeline or pipeline/stage."`
	NotUndone  bool      `query:"not_undone" json:"not_undone,omitempty" doc:"true: only failed runs with a compensation that has failed for good, so what they have done is not undone."`
	Version    string    `query:"version" json:"version,omitempty" maxLength:"256" doc:"Only runs on this version of the pipelines: at least its first 4 digits."`
	ErrorClass string    `query:"error_class" json:"error_class,omitempty" pattern:"^(timeout|deadline|connection|credentials|certificate|schema|other|quarantined|damaged|unserved|status|[1-5]xx|[1-5][0-9][0-9])$" want:"want timeout, deadline, connection, credentials, certificate, schema, a status such as 503, 4xx, 5xx, status, other, quarantined, damaged or unserved" doc:"Only runs that failed with an error of this class: timeout, deadline, connection, credentials, certificate, schema, a status such as 503, 4xx, 5xx, status or other. quarantined: runs that nodes died of. damaged: runs whose data cannot be read."`
	Error      string    `query:"error" json:"error,omitempty" maxLength:"512" doc:"Only runs whose error contains this text."`
	Since      time.Time `query:"since" json:"since,omitzero" doc:"Only runs accepted at this time or later."`
	Until      time.Time `query:"until" json:"until,omitzero" doc:"Only runs accepted before this time."`

	FailedSince time.Time `query:"failed_since" json:"failed_since,omitzero" doc:"Only failed runs that failed at this time or later."`
}

// A Redrive chooses runs to retry, cancel or move, and says how.
type Redrive struct {
	RunChoice

	Status     string `json:"status,omitempty" enum:"waiting,running,parked,failed" by:"engine" doc:"Only runs with this status. A retry chooses failed runs. With parked it chooses runs that wait for an operator."`
	LeftBy     string `json:"left_by,omitempty" enum:"switch,fallback,limit,wait,failed" doc:"Only for make-up: only runs that left out the handler for this reason."`
	Preview    bool   `json:"preview,omitempty" doc:"true changes nothing, and returns the chosen runs."`
	Limit      int    `json:"limit,omitempty" minimum:"1" maximum:"1000" default:"50" doc:"The most runs of one call."`
	Cursor     string `json:"cursor,omitempty" maxLength:"512" doc:"Where to continue: next of the previous call."`
	Reason     string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit. Cancelled runs store it."`
	Compensate *bool  `json:"compensate,omitempty" default:"true" doc:"Only for cancel: false ends the runs as they are, without compensations."`
}

// A Migration is the optional body of a call that moves a run.
type Migration struct {
	Preview bool   `json:"preview,omitempty" doc:"true changes nothing, and reports whether the run fits."`
	Reason  string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit."`
}

// A Rerun is the optional body of the call that reruns a run.
type Rerun struct {
	From    string `json:"from,omitempty" maxLength:"256" doc:"The stage from which the new run begins: its id, or pipeline/stage. What the run did before stays. The default is the first stage."`
	Preview bool   `json:"preview,omitempty" doc:"true changes nothing, and returns what would happen."`
	Reason  string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit. The new run stores it."`
}

// NewRedrive makes the body of a call that changes the runs of a filter.
func NewRedrive(f store.RunFilter) Redrive {
	return Redrive{
		RunChoice: RunChoice{
			Pipeline: f.Pipeline, Flow: f.Flow, Key: f.Key, Label: f.Labels, Handler: cmp.Or(f.FailedPath, f.LeftOut), NotUndone: f.NotUndone, Version: f.Bundle,
			ErrorClass: f.ErrorClass, Error: f.Error, Since: f.Since, Until: f.Until, FailedSince: f.FailedSince,
		},
		Status: string(f.Status), LeftBy: f.LeftBy, Limit: f.Limit, Cursor: f.Cursor,
	}
}

// An Erasure says which key to erase. The key is in the body, so that no address in a log has it.
type Erasure struct {
	Flow    string `json:"flow" minLength:"1" maxLength:"256" doc:"The flow, or the pipeline if it has none."`
	Key     string `json:"key" minLength:"1" maxLength:"1024" doc:"The key."`
	Cancel  bool   `json:"cancel,omitempty" doc:"true cancels what is unfinished first, with its compensations, and waits up to 30 s for its end."`
	Preview bool   `json:"preview,omitempty" doc:"true changes nothing, and counts."`
	Vacuum  bool   `json:"vacuum,omitempty" doc:"true writes a SQLite file anew, so that no copy stays in unused parts of it. Other writes wait meanwhile. PostgreSQL ignores it."`
	Reason  string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for the audit. Do not name the key in it."`
}

// EraseTime is how long an erasure may take. A retry erases the rest of a key with millions of runs.
const EraseTime = 10 * time.Minute
