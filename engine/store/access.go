package store

import (
	"context"
	"time"

	"procaas/engine/model"
)

// This file is the part of the ports that speaks of who may change what, and of
// who has.

// Tokens keeps who may call the API. They are settings: their changes move the
// revision of the settings.
type Tokens interface {
	// AllTokens reads all tokens by their names, those that are revoked or expired
	// included, and the revision of the settings.
	AllTokens(ctx context.Context) (map[string]Setting, int64, error)

	// SetToken stores a token as [Settings].SetConfig does a setting. Its hash is
	// kept beside the value, so that it never gets into the audit; empty lets
	// nobody in.
	SetToken(ctx context.Context, name string, value, hash []byte, ifRevision int64, by Actor) (int64, error)
}

// Audits keeps who changed what. Records are written with what they tell of, in
// one transaction, and are never changed. They are a chain, in the order of their
// revisions, which have no gaps: see [Audited.ChainHash].
type Audits interface {
	// Audit reads the records that a filter chooses, the last one first.
	Audit(ctx context.Context, f AuditFilter) ([]Audited, error)

	// VerifyAudit follows the chain of each database from its oldest record to its
	// last one. kept are hashes to look for.
	VerifyAudit(ctx context.Context, kept []string) ([]AuditChain, error)

	// ForgetAudit removes a bounded part of the records that are older than keep, the
	// first revisions first, all but the last one; more tells that there may be more
	// of them. The hash of the last one removed is kept, since the next one builds on
	// it. Nothing else removes records: the databases refuse it.
	ForgetAudit(ctx context.Context, keep time.Duration) (more bool, err error)
}

// An AuditFilter chooses audit records. Empty fields choose all but Limit, which
// is needed.
type AuditFilter struct {
	Kind   string
	Name   string // of what was changed, or a path above it
	By     string
	Since  time.Time // changed then or later
	Until  time.Time // changed before
	Before int64     // a revision
	Limit  int
}

// An Audited is a change that an operator made.
type Audited struct {
	Revision int64
	Changed  time.Time
	By       Actor
	Kind     string // one of the kinds below
	Name     string // of the setting, service or token, the path of the control or handler, the id of the run; empty for a definition
	Before   []byte // JSON; empty when there was nothing
	After    []byte // JSON; null when there is nothing any more
	Hash     []byte // of this record and the chain before it; empty for one from before there were chains
}

// The kinds of changes that are audited.
const (
	AuditCanary     = "canary"  // a new version was tried on a share of the keys; the name is the version
	AuditCluster    = "cluster" // a lever of a cluster, or moves of its partitions
	AuditConfig     = "config"
	AuditControl    = "control"
	AuditDefinition = "definition" // before and after are hashes
	AuditEvent      = "event"      // somebody submitted an event by hand, in the console; the name is its run
	AuditFallback   = "fallback"   // a handler, or a service, went out of the flow or came back
	AuditInbox      = "inbox"      // slots move from one cluster of the inbox to another; the name is the move's
	AuditQueue      = "queue"      // the mode of a type of tasks, whose name is the record's
	AuditRefusal    = "refusal"    // a token tried what it may not; the name is the call, after says why
	AuditRun        = "run"        // before and after are an [AuditedRun]
	AuditShard      = "shard"      // of a shard map: closed, opened, drained or enrolled; a placement was split or merged
	AuditToken      = "token"      // before and after are without the hash
	AuditTransfer   = "transfer"   // an order to the transfer between shards whose id is the name
)

// AuditKinds lists them.
func AuditKinds() []string {
	return []string{
		AuditCanary, AuditCluster, AuditConfig, AuditControl, AuditDefinition, AuditEvent, AuditFallback, AuditInbox, AuditQueue, AuditRefusal,
		AuditRun, AuditShard, AuditToken, AuditTransfer,
	}
}

// AuditText makes a text, such as a hash, what an [Audited] keeps; an empty one
// is nothing.
func AuditText(text string) []byte {
	if text == "" {
		return nil
	}
	return model.EncodeJSON(text)
}

// AuditRemoved is what an [Audited] keeps as After of what was removed.
func AuditRemoved() []byte { return []byte("null") }

// An AuditedRun is what an [Audited] keeps of a run that an operator retried,
// cancelled or moved.
type AuditedRun struct {
	Pipeline   string       `json:"pipeline"`
	Status     model.Status `json:"status"`
	Cancelling bool         `json:"cancelling,omitempty"` // its node will end it
	Undoing    bool         `json:"undoing,omitempty"`    // it will undo what it has done, and end
	Generation int          `json:"generation"`
	FailedPath string       `json:"failed_handler,omitempty"`
	ErrorClass string       `json:"error_class,omitempty"`
	Error      string       `json:"error,omitempty"`       // which a retry takes from the run
	Bundle     string       `json:"bundle,omitempty"`      // of one that is moved
	MigratesTo string       `json:"migrates_to,omitempty"` // its node will move it
	MakesUp    string       `json:"makes_up,omitempty"`    // the handler that it does after it had ended
	RerunOf    string       `json:"rerun_of,omitempty"`    // the run that it runs again
	RerunFrom  string       `json:"rerun_from,omitempty"`  // the stage from which it does; empty for the first
}

// Retried makes the record of a retry of the run by an operator; the revision is
// the store's.
func (r AuditedRun) Retried(id string, by Actor) Audited {
	after := AuditedRun{Pipeline: r.Pipeline, Status: model.Waiting, Generation: r.Generation + 1}
	return Audited{Kind: AuditRun, Name: id, By: by, Before: model.EncodeJSON(r), After: model.EncodeJSON(after)}
}

// MadeUp does so for a handler that the run makes up.
func (r AuditedRun) MadeUp(m MakeUp, by Actor) Audited {
	after := AuditedRun{Pipeline: r.Pipeline, Status: model.Waiting, Generation: r.Generation + 1, MakesUp: m.Path}
	return Audited{Kind: AuditRun, Name: m.Run, By: by, Before: model.EncodeJSON(r), After: model.EncodeJSON(after)}
}

// Rerun makes the record of a run that runs another one again, when the event is of such a one. It tells of the new run.
func Rerun(in model.Intake) (record Audited, is bool) {
	r := in.Event.Rerun
	if r == nil {
		return record, false
	}
	after := AuditedRun{Pipeline: in.Pipeline, Status: model.Waiting, RerunOf: r.Of, RerunFrom: r.Stage}
	return Audited{Kind: AuditRun, Name: in.ID, By: Actor{Name: r.By, Reason: r.Reason}, After: model.EncodeJSON(after)}, true
}

// Cancelled does so for a cancellation.
func (r AuditedRun) Cancelled(id string, by Actor) Audited {
	after := r
	if after.Cancelling = r.Status == model.Running; !after.Cancelling {
		after.Status = model.Cancelled
	}
	return Audited{Kind: AuditRun, Name: id, By: by, Before: model.EncodeJSON(r), After: model.EncodeJSON(after)}
}

// Undone does so for a cancellation by which the run undoes what it has done first.
func (r AuditedRun) Undone(id string, by Actor) Audited {
	after := r
	after.Undoing = true
	return Audited{Kind: AuditRun, Name: id, By: by, Before: model.EncodeJSON(r), After: model.EncodeJSON(after)}
}

// Moved does so for a move from one definition to another.
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
