package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"procaas/engine/store"
)

const (
	documentColumns = "select kind, name, version, value, changed, node from documents"
	findDocument    = documentColumns + " where kind = $1 and name = $2"
	listDocuments   = documentColumns + " where kind = $1 and name >= $2 and substr(name, 1, length($2)) = $2 order by name"
	newDocument     = `insert into documents (kind, name, version, value, changed, node) values ($1, $2, 1, $3, {now}, $4)
	on conflict do nothing returning version`
	nextDocument = `update documents set version = version + 1, value = $3, changed = {now}, node = $4
	where kind = $1 and name = $2 and version = $5 returning version`
	// Encryption has begun: see [EncryptionVersion].
	raiseFloor = "update schema_floor set floor = $1 where history = '' and floor < $1"

	// For writers that overwrite any version, such as the last observation of a balancer.
	anyDocument = `insert into documents as d (kind, name, version, value, changed, node) values ($1, $2, 1, $3, {now}, $4)
	on conflict (kind, name) do update set version = d.version + 1, value = excluded.value, changed = excluded.changed, node = excluded.node
	returning version`
)

// Documents implements [store.Documents] in a database.
type Documents struct {
	db DB

	// OnDocuments is called after this process has changed documents.
	OnDocuments func()

	// News reports changes of documents by any process.
	News store.Broadcast
}

// documents reads documents.
func (d *Documents) documents(ctx context.Context, query string, args ...any) (found []store.Document, err error) {
	err = d.db.Read(ctx, query, args, func(r Row) error {
		var one store.Document
		err := r.Scan(&one.Kind, &one.Name, &one.Version, &one.Value, at(&one.Changed), &one.Node)
		found = append(found, one)
		return err
	})
	return found, err
}

// Document implements [store.Documents].
func (d *Documents) Document(ctx context.Context, kind, name string) (store.Document, error) {
	found, err := d.documents(ctx, findDocument, kind, name)
	if err != nil {
		return store.Document{}, err
	}
	if len(found) == 0 {
		return store.Document{}, store.ErrNotFound
	}
	return found[0], nil
}

// DocumentsOf implements [store.Documents].
func (d *Documents) DocumentsOf(ctx context.Context, kind, prefix string) ([]store.Document, error) {
	return d.documents(ctx, listDocuments, kind, prefix)
}

// WriteDocuments implements [store.Documents]. It locks documents in the order of their kinds and
// names.
func (d *Documents) WriteDocuments(ctx context.Context, node int64, writes []store.DocumentWrite, audits []store.Audited) ([]int64, error) {
	order := make([]int, len(writes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(writes[a].Kind, writes[b].Kind), cmp.Compare(writes[a].Name, writes[b].Name))
	})
	var versions []int64
	err := d.db.Write(ctx, func(t Tx) error {
		versions = make([]int64, len(writes))
		live := t.AsNode(node)
		for _, i := range order {
			writeDocument(t, node, writes[i], &versions[i])
			if writes[i].Kind == store.EncryptionKind {
				t.Queue(raiseFloor, []any{EncryptionVersion})
			}
		}
		if err := t.Send(ctx); err != nil {
			return err
		}
		if node != 0 && !*live {
			return store.ErrFenced
		}
		if slices.Contains(versions, 0) {
			return store.ErrConflict
		}
		return Audit(ctx, t, audits...)
	})
	if err != nil {
		return nil, fmt.Errorf("write documents: %w", err)
	}
	d.News.Send()
	d.OnDocuments()
	return versions, nil
}

// writeDocument queues one write. The version stays 0 if it is refused.
func writeDocument(t Tx, node int64, w store.DocumentWrite, version *int64) {
	sql, args := nextDocument, []any{w.Kind, w.Name, w.Value, node, w.Version}
	switch w.Version {
	case store.AnyVersion:
		sql, args = anyDocument, args[:4]
	case 0:
		sql, args = newDocument, args[:4]
	}
	t.Queue(sql, args, version)
}

// Changed implements [store.Documents].
func (d *Documents) Changed() <-chan struct{} { return d.News.Next() }
