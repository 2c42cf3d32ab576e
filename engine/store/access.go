package store

import (
	"context"
	"time"

	"procaas/engine/model"
)

// This file has the ports for access and for the audit.

// Tokens stores the tokens of the API. They are settings, so a change makes a new revision of the
// settings.
type Tokens interface {
	// AllTokens reads all tokens, ordered by name, including revoked and expired ones. It also
	// returns the revision of the settings.
	AllTokens(ctx context.Context) (map[string]Setting, int64, error)

	// SetToken stores a token like [Settings].SetConfig. The hash is stored beside the value, so it
	// never gets into the audit. An empty hash lets nobody in.
	SetToken(ctx context.Context, name string, value, hash []byte, ifRevision int64, by Actor) (int64, error)
}

// Audits stores who changed what. A record is written in the transaction of its change, and never
// changes. The records are a chain in the order of their revisions, which have no gaps: see
// [Audited.ChainHash].
type Audits interface {
	// Audit reads the records that a filter chooses, newest first.
	Audit(ctx context.Context, f AuditFilter) ([]Audited, error)

	// VerifyAudit follows the chain of each database from its oldest record to its newest. kept are
	// hashes to look for.
	VerifyAudit(ctx context.Context, kept []string) ([]AuditChain, error)

	// ForgetAudit removes a limited number of records older than keep, oldest first, but never the
	// last one that is no trim. more reports that there may be others. It keeps the hash of the
	// last removed record, because the next record builds on it, and adds a record of the kind
	// [AuditTrim] in the same transaction. The databases refuse to remove records in any other way.
	ForgetAudit(ctx context.Context, keep time.Duration) (more bool, err error)
}

// An AuditFilter chooses audit records. Empty fields choose all, except Limit, which is required.
type AuditFilter struct {
	Kind   string
	Name   string // of the changed thing, or a path above it
	By     string
	Since  time.Time // changed at this time or later
	Until  time.Time // changed before this time
	Before int64     // only lower revisions
	Limit  int
}

// An Audited is the record of an operator's change.
type Audited struct {
	Revision int64
	Changed  time.Time
	By       Actor
	Kind     string // one of the kinds below
	// Name is that of the setting, service or token, the path of the control or handler, or the id
	// of the run. It is empty for a definition.
	Name   string
	Before []byte // JSON; empty if there was nothing
	After  []byte // JSON; null if it was removed
	Hash   []byte // of this record and the chain before it; empty if it is older than the chain
}

// These are the kinds of audited changes.
const (
	AuditCanary  = "canary"  // a new version was tried on a share of the keys; the name is the version
	AuditCluster = "cluster" // a lever of a cluster, or moves of its partitions
	AuditConfig  = "config"
	AuditControl = "control"
	// Dead letters of a subscription were retried or discarded. The name is its path.
	AuditDeadLetter = "dead-letter"
	AuditDefinition = "definition" // before and after are hashes
	AuditErase      = "erase"      // a key was erased; the name is its flow and the hash of the key, After is a receipt
	AuditEvent      = "event"      // an event submitted by hand in the console; the name is its run
	AuditFallback   = "fallback"   // fallback turned a handler or a service off or on
	AuditInbox      = "inbox"      // slots move from one database of the inbox to another; the name is that of the move
	AuditKeys       = "keys"       // data keys of the encryption were made, adopted or removed; the name is what was done
	AuditQueue      = "queue"      // the mode of a task type; the name is the type
	AuditRefusal    = "refusal"    // a token tried a call without permission; the name is the call, After says why
	AuditRun        = "run"        // before and after are an [AuditedRun]
	AuditSession    = "session"    // the bearer of a token signed in to the console, or out; the name is that of the token
	// a shard of a map was closed, opened, drained or enrolled, or a placement was split or merged
	AuditShard    = "shard"
	AuditStore    = "store"    // a restored store was adopted; After is a [Restored]
	AuditToken    = "token"    // Before and After are without the hash
	AuditTransfer = "transfer" // an order to a transfer between shards; the name is its id
	AuditTrigger  = "trigger"  // an operator fired a trigger by hand or for times in the past; the name is its path
	AuditTrim     = "trim"     // records were removed for their age; After is an [AuditedTrim]
)

// AuditKinds lists the kinds.
func AuditKinds() []string {
	return []string{
		AuditCanary, AuditCluster, AuditConfig, AuditControl, AuditDeadLetter, AuditDefinition, AuditErase, AuditEvent, AuditFallback,
		AuditInbox, AuditKeys,
		AuditQueue, AuditRefusal, AuditRun, AuditSession, AuditShard, AuditStore, AuditToken, AuditTransfer, AuditTrigger, AuditTrim,
	}
}

// AuditText encodes a text, such as a hash, for an [Audited]. An empty text becomes nil.
func AuditText(text string) []byte {
	if text == "" {
		return nil
	}
	return model.EncodeJSON(text)
}

// AuditRemoved is the After of something that was removed.
func AuditRemoved() []byte { return []byte("null") }

// An AuditedRun is what an [Audited] stores about a run that an operator retried, cancelled or
// moved.
type AuditedRun struct {
	Pipeline   string       `json:"pipeline"`
	Status     model.Status `json:"status"`
	Cancelling bool         `json:"cancelling,omitempty"` // its node will end it
	Undoing    bool         `json:"undoing,omitempty"`    // it will undo what it has done, then end
	Generation int          `json:"generation"`
	FailedPath string       `json:"failed_handler,omitempty"`
	ErrorClass string       `json:"error_class,omitempty"`
	Error      string       `json:"error,omitempty"`       // removed by a retry
	Bundle     string       `json:"bundle,omitempty"`      // of a moved run
	MigratesTo string       `json:"migrates_to,omitempty"` // its node will move it to this definition
	MakesUp    string       `json:"makes_up,omitempty"`    // the handler that it makes up for after its end
	RerunOf    string       `json:"rerun_of,omitempty"`    // the run that it repeats
	RerunFrom  string       `json:"rerun_from,omitempty"`  // the stage from which it repeats; empty for the first
}

// Retried makes the record of an operator's retry of the run. The store sets the revision.
func (r AuditedRun) Retried(id string, by Actor) Audited {
	after := AuditedRun{Pipeline: r.Pipeline, Status: model.Waiting, Generation: r.Generation + 1}
	return Audited{Kind: AuditRun, Name: id, By: by, Before: model.EncodeJSON(r), After: model.EncodeJSON(after)}
}

// MadeUp makes the record of making up for a handler.
func (r AuditedRun) MadeUp(m MakeUp, by Actor) Audited {
	after := AuditedRun{Pipeline: r.Pipeline, Status: model.Waiting, Generation: r.Generation + 1, MakesUp: m.Path}
	return Audited{Kind: AuditRun, Name: m.Run, By: by, Before: model.EncodeJSON(r), After: model.EncodeJSON(after)}
}

// Rerun makes the record of a rerun. is reports whether the event belongs to one. The record is
// about the new run.
func Rerun(in model.Intake) (record Audited, is bool) {
	r := in.Event.Rerun
	if r == nil {
		return record, false
	}
	after := AuditedRun{Pipeline: in.Pipeline, Status: model.Waiting, RerunOf: r.Of, RerunFrom: r.Stage}
	return Audited{Kind: AuditRun, Name: in.ID, By: Actor{Name: r.By, Reason: r.Reason}, After: model.EncodeJSON(after)}, true
}

// Cancelled makes the record of a cancellation.
func (r AuditedRun) Cancelled(id string, by Actor) Audited {
	after := r
	after.Cancelling = r.Status == model.Running
	if !after.Cancelling {
		after.Status = model.Cancelled
	}
	return Audited{Kind: AuditRun, Name: id, By: by, Before: model.EncodeJSON(r), After: model.EncodeJSON(after)}
}

// Undone makes the record of a cancellation that first undoes what the run has done.
func (r AuditedRun) Undone(id string, by Actor) Audited {
	after := r
	after.Undoing = true
	return Audited{Kind: AuditRun, Name: id, By: by, Before: model.EncodeJSON(r), After: model.EncodeJSON(after)}
}

// Moved makes the record of a move from one definition to another.
func (r AuditedRun) Moved(m Move, from string, by Actor) Audited {
	r.Bundle = from
	after := r
	if r.Status == model.Running {
		after.MigratesTo = m.Bundle
	} else {
		after.Bundle = m.Bundle
	}
	return Audited{Kind: AuditRun, Name: m.Run, By: by, Before: model.EncodeJSON(r), After: model.EncodeJSON(after)}
}
