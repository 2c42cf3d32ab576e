package records

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/model"
	"procaas/engine/store"
)

// Audits reads and writes the audit. The caller sets its exported field.
type Audits struct {
	Store store.Store
}

// An AuditView is a change by an operator in the form for people and programs.
type AuditView struct {
	Revision int64     `json:"revision" doc:"The revision of the settings after the change."`
	Changed  time.Time `json:"changed"`
	By       string    `json:"by"`
	Reason   string    `json:"reason"`
	Kind     string    `json:"kind" doc:"config: a live setting; control: a switch, limit or rollout; definition: the hashes of the pipelines of all nodes; fallback: a handler or service that left the flow or came back; run: a retry, a cancellation or a move to another definition; token: a token that was made or revoked."`
	Name     string    `json:"name" doc:"The setting, service or token, the path of the control or handler, or the id of the run."`
	Before   any       `json:"before" doc:"The value before; null if there was none."`
	After    any       `json:"after"`
	Hash     string    `json:"hash" doc:"The SHA-256 of the record and of the hash before it. Empty for records from before the chain began."`
}

// Audit reads the changes, newest first.
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

// NoteEvent records that somebody has submitted an event by hand. The event is already stored with
// their name in its source, so a crash loses nothing that matters.
func (a *Audits) NoteEvent(ctx context.Context, run string, e AuditedEvent, by store.Actor) error {
	_, err := a.Store.Documents.WriteDocuments(ctx, 0, nil, []store.Audited{{
		Kind: store.AuditEvent, Name: run, By: by, After: model.EncodeJSON(e),
	}})
	if err != nil {
		return fmt.Errorf("note event: %w", err)
	}
	return nil
}

// An AuditedEvent is an event in the audit. Its payload stays with the run.
type AuditedEvent struct {
	Type   string `json:"type"`
	ID     string `json:"id"`
	Source string `json:"source"`
}

// An AuditReport says whether the audit is unchanged.
type AuditReport struct {
	Whole   bool               `json:"whole" doc:"true if nobody changed, removed or inserted a record, and all expected hashes exist."`
	Chains  []store.AuditChain `json:"chains" doc:"One chain for each database of the inbox."`
	Missing []string           `json:"missing" doc:"Expected hashes that no chain has. Somebody recomputed the chain, or the records were deleted by age."`
}

// VerifyAudit checks whether the audit is unchanged, also against hashes that were kept elsewhere.
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
