package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"procaas/engine/store"
)

const (
	documentColumns = "select kind, name, version, value, changed, node from documents"
	findDocument    = documentColumns + " where kind = ? and name = ?"
	listDocuments   = documentColumns + " where kind = ? and name >= ? and substr(name, 1, length(?)) = ? order by name"
	newDocument     = "insert into documents (kind, name, version, value, changed, node) values (?, ?, 1, ?, ?, ?) on conflict do nothing " +
		"returning version"
	nextDocument = "update documents set version = version + 1, value = ?, changed = ?, node = ? where kind = ? and name = ? and " +
		"version = ? returning version"
	anyDocument = `insert into documents (kind, name, version, value, changed, node) values (?, ?, 1, ?, ?, ?)
	on conflict (kind, name) do update set version = documents.version + 1, value = excluded.value, changed = excluded.changed, node = excluded.node
	returning version`
)

func scanDocument(s interface{ Scan(...any) error }) (d store.Document, err error) {
	var changed sql.NullInt64
	err = s.Scan(&d.Kind, &d.Name, &d.Version, &d.Value, &changed, &d.Node)
	d.Changed = fromMicros(changed)
	return d, err
}

// Document implements [store.Documents].
func (s *Store) Document(ctx context.Context, kind, name string) (store.Document, error) {
	d, err := scanDocument(s.read.QueryRowContext(ctx, findDocument, kind, name))
	if errors.Is(err, sql.ErrNoRows) {
		err = store.ErrNotFound
	}
	return d, err
}

// Documents implements [store.Documents].
func (s *Store) Documents(ctx context.Context, kind, prefix string) ([]store.Document, error) {
	r, err := s.read.QueryContext(ctx, listDocuments, kind, prefix, prefix, prefix)
	if err != nil {
		return nil, err
	}
	return collect(r, func(r *sql.Rows) (store.Document, error) { return scanDocument(r) })
}

// WriteDocuments implements [store.Documents].
func (s *Store) WriteDocuments(ctx context.Context, node int64, writes []store.DocumentWrite,
	audits []store.Audited,
) (versions []int64, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		if node != 0 {
			if err := t.live(node); err != nil {
				return err
			}
		}
		versions = make([]int64, len(writes))
		for i, w := range writes {
			if versions[i], err = t.writeDocument(node, w); err != nil {
				return err
			}
		}
		for _, a := range audits {
			if _, err := t.audit(a); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.changed.Send()
	return versions, nil
}

func (t *tx) writeDocument(node int64, w store.DocumentWrite) (version int64, err error) {
	now, found := t.now.UnixMicro(), false
	switch w.Version {
	case store.AnyVersion:
		found, err = t.row(anyDocument, []any{w.Kind, w.Name, w.Value, now, node}, &version)
	case 0:
		found, err = t.row(newDocument, []any{w.Kind, w.Name, w.Value, now, node}, &version)
	default:
		found, err = t.row(nextDocument, []any{w.Value, now, node, w.Kind, w.Name, w.Version}, &version)
	}
	if err == nil && !found {
		err = store.ErrConflict
	}
	return version, err
}

// Changed implements [store.Documents]. All writers of a file are in this process.
func (s *Store) Changed() <-chan struct{} { return s.changed.Next() }
