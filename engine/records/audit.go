package records

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/clock"
	"procaas/engine/model"
	"procaas/engine/store"
)

// Audits is who changed what. Its exported field is to be set.
type Audits struct {
	Store store.Store
}

// An AuditView is a change that an operator made, as people and programs see it.
type AuditView struct {
	Revision int64     `json:"revision"`
	Changed  time.Time `json:"changed"`
	By       string    `json:"by"`
	Reason   string    `json:"reason"`
	Kind     string    `json:"kind"` // config, control, definition, fallback, run or token
	Name     string    `json:"name"` // of the setting, service or token, the path of the control or handler, the id of the run; empty for a definition
	Before   any       `json:"before"`
	After    any       `json:"after"`
	Hash     string    `json:"hash"`
}

// Audit reads who changed what, the last change first.
func (a *Audits) Audit(ctx context.Context, f store.AuditFilter) ([]AuditView, error) {
	list, err := a.Store.Audits.Audit(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("read the audit: %w", err)
	}
	out := make([]AuditView, len(list))
	for i, d := range list {
		v := AuditView{
			Revision: d.Revision, Changed: d.Changed, By: d.By.Name, Reason: d.By.Reason, Kind: d.Kind, Name: d.Name,
			Hash: hex.EncodeToString(d.Hash),
		}
		if len(d.Before) > 0 {
			if v.Before, err = datum.ParseJSON(d.Before); err != nil {
				return nil, fmt.Errorf("read audit %d: before: %w", d.Revision, err)
			}
		}
		if v.After, err = datum.ParseJSON(d.After); err != nil {
			return nil, fmt.Errorf("read audit %d: after: %w", d.Revision, err)
		}
		out[i] = v
	}
	return out, nil
}

// NoteEvent writes down that somebody has submitted an event by hand. The event is stored by then, and has their name in
// its source: what a crash keeps out of the audit is still known.
func (a *Audits) NoteEvent(ctx context.Context, run string, e AuditedEvent, by store.Actor) error {
	_, err := a.Store.Documents.WriteDocuments(ctx, 0, nil, []store.Audited{{
		Kind: store.AuditEvent, Name: run, By: by, After: model.EncodeJSON(e),
	}})
	if err != nil {
		return fmt.Errorf("note event: %w", err)
	}
	return nil
}

// An AuditedEvent is what the audit keeps of an event. Its payload stays with the run.
type AuditedEvent struct {
	Type   string `json:"type"`
	ID     string `json:"id"`
	Source string `json:"source"`
}

// An AuditReport tells whether the audit is as it was written.
type AuditReport struct {
	Whole   bool               `json:"whole"`
	Chains  []store.AuditChain `json:"chains"`
	Missing []string           `json:"missing"`
}

// VerifyAudit looks whether the audit is as it was written, and holds hashes that were
// kept elsewhere.
func (a *Audits) VerifyAudit(ctx context.Context, kept []string) (AuditReport, error) {
	chains, err := a.Store.Audits.VerifyAudit(ctx, kept)
	if err != nil {
		return AuditReport{}, fmt.Errorf("verify the audit: %w", err)
	}
	r := AuditReport{Chains: chains, Missing: append([]string{}, kept...)}
	whole := true
	for _, c := range chains {
		whole = whole && c.Break == nil
		r.Missing = slices.DeleteFunc(r.Missing, func(hash string) bool { return slices.Contains(c.Holds, hash) })
	}
	r.Whole = whole && len(r.Missing) == 0
	return r, nil
}

// SetQueueMode lets set say what a type of tasks does from now on, and writes down by
// whom. The queue may be in another store, so one transaction cannot hold both: the
// record comes first, and without it nothing changes. A change that fails afterwards
// has a second record, which says so.
func (a *Audits) SetQueueMode(ctx context.Context, taskType string, mode store.TaskMode, by store.Actor, set func() error) error {
	record := func(ctx context.Context, after string) error {
		_, err := a.Store.Documents.WriteDocuments(ctx, 0, nil,
			[]store.Audited{{Kind: store.AuditQueue, Name: taskType, By: by, After: store.AuditText(after)}})
		return err
	}
	if err := record(ctx, string(mode)); err != nil {
		return fmt.Errorf("%s is not made %s, for the audit cannot be written: %w", taskType, mode, err)
	}
	failed := set()
	if failed == nil {
		return nil
	}
	// The caller may be gone by now, which is often why it failed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clock.StoreTimeout)
	defer cancel()
	return errors.Join(failed, record(ctx, fmt.Sprintf("%s failed: %v", mode, failed)))
}
