package sealed

import (
	"bytes"
	"context"
	"slices"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// documents seals documents, such as dead letters of subscriptions.
type documents struct {
	store.Documents
	v *Vault
}

func documentAt(kind, name string) string { return place("document", kind, name) }

// open opens a document.
func (d documents) open(ctx context.Context, one *store.Document) (err error) {
	one.Value, err = d.v.openBytes(ctx, one.Value, documentAt(one.Kind, one.Name))
	return err
}

// Document implements [store.Documents].
func (d documents) Document(ctx context.Context, kind, name string) (store.Document, error) {
	one, err := d.Documents.Document(ctx, kind, name)
	if err == nil {
		err = d.open(ctx, &one)
	}
	return one, err
}

// DocumentsOf implements [store.Documents].
func (d documents) DocumentsOf(ctx context.Context, kind, prefix string) ([]store.Document, error) {
	all, err := d.Documents.DocumentsOf(ctx, kind, prefix)
	for i := range all {
		if err == nil {
			err = d.open(ctx, &all[i])
		}
	}
	return all, err
}

// WriteDocuments implements [store.Documents].
func (d documents) WriteDocuments(ctx context.Context, node int64, writes []store.DocumentWrite, audits []store.Audited) ([]int64, error) {
	k, err := d.v.now(ctx)
	if err != nil {
		return nil, err
	}
	sealed := slices.Clone(writes)
	for i, w := range sealed {
		if sealed[i].Value, err = k.bytes(w.Value, documentAt(w.Kind, w.Name)); err != nil {
			return nil, err
		}
	}
	return d.Documents.WriteDocuments(ctx, node, sealed, audits)
}

// degradation seals the state of fallbacks and the paths of tallies. Both may have values of runs that a version in the shadow replays.
type degradation struct {
	store.Degradation
	v *Vault
}

const (
	outagesAt = "outages"
	tallyAt   = "tally"
)

// Report implements [store.Degradation].
func (d degradation) Report(ctx context.Context, node, number int64, tallies []model.Tally) error {
	k, err := d.v.now(ctx)
	if err != nil {
		return err
	}
	tallies = slices.Clone(tallies)
	for i := range tallies {
		if tallies[i].Path, err = k.text(tallies[i].Path, tallyAt); err != nil {
			return err
		}
	}
	return d.Degradation.Report(ctx, node, number, tallies)
}

// Deliberate implements [store.Degradation].
func (d degradation) Deliberate(ctx context.Context, keep time.Duration) (out store.Deliberation, err error) {
	if out, err = d.Degradation.Deliberate(ctx, keep); err != nil {
		return out, err
	}
	for _, list := range [][]model.Tally{out.Fresh, out.Past} {
		for i := range list {
			if list[i].Path, err = d.v.openText(ctx, list[i].Path, tallyAt); err != nil {
				return out, err
			}
		}
	}
	out.State, err = d.v.openBytes(ctx, out.State, outagesAt)
	return out, err
}

// Conclude implements [store.Degradation].
func (d degradation) Conclude(ctx context.Context, c store.Conclusion) error {
	k, err := d.v.now(ctx)
	if err == nil {
		c.State, err = k.bytes(c.State, outagesAt)
	}
	if err != nil {
		return err
	}
	return d.Degradation.Conclude(ctx, c)
}

// Outages implements [store.Degradation].
func (d degradation) Outages(ctx context.Context) ([]byte, int64, error) {
	state, revision, err := d.Degradation.Outages(ctx)
	if err == nil {
		state, err = d.v.openBytes(ctx, state, outagesAt)
	}
	return state, revision, err
}

// audits opens the errors of runs that operators have steered. A store copies them into the audit as it has them.
type audits struct {
	store.Audits
	v *Vault
}

// Audit implements [store.Audits].
func (a audits) Audit(ctx context.Context, f store.AuditFilter) ([]store.Audited, error) {
	all, err := a.Audits.Audit(ctx, f)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Kind == store.AuditRun {
			all[i].Before = a.open(ctx, all[i].Name, all[i].Before)
			all[i].After = a.open(ctx, all[i].Name, all[i].After)
		}
	}
	return all, nil
}

// open opens the error of a run in a record about it. The rest of the record stays as it is.
func (a audits) open(ctx context.Context, run string, record []byte) []byte {
	before, rest, found := bytes.Cut(record, []byte(`"`+mark))
	secret, after, ended := bytes.Cut(rest, []byte(`"`))
	if !found || !ended {
		return record
	}
	text := mark + string(secret)
	a.v.openError(ctx, &text, errorAt(run))
	return slices.Concat(before, model.EncodeJSON(text), after)
}
