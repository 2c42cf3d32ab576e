package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"procaas/engine/store"
)

type documentKey struct{ kind, name string }

// Document implements [store.Documents].
func (m documentPort) Document(ctx context.Context, kind, name string) (store.Document, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, known := m.documents[documentKey{kind, name}]
	if !known {
		return d, cmp.Or(ctx.Err(), store.ErrNotFound)
	}
	return d, ctx.Err()
}

// DocumentsOf implements [store.Documents].
func (m documentPort) DocumentsOf(ctx context.Context, kind, prefix string) ([]store.Document, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []store.Document
	for key, d := range m.documents {
		if key.kind == kind && strings.HasPrefix(key.name, prefix) {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b store.Document) int { return cmp.Compare(a.Name, b.Name) })
	return out, ctx.Err()
}

// WriteDocuments implements [store.Documents].
func (m documentPort) WriteDocuments(
	ctx context.Context, node int64, writes []store.DocumentWrite, audits []store.Audited,
) ([]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n := m.nodes[node]; node != 0 && (n == nil || n.gone) {
		return nil, store.ErrFenced
	}
	for _, w := range writes {
		if have := m.documents[documentKey{w.Kind, w.Name}].Version; w.Version != store.AnyVersion && w.Version != have {
			return nil, store.ErrConflict
		}
	}
	versions := make([]int64, len(writes))
	for i, w := range writes {
		key := documentKey{w.Kind, w.Name}
		versions[i] = m.documents[key].Version + 1
		m.documents[key] = store.Document{
			Kind: w.Kind, Name: w.Name, Version: versions[i], Value: bytes.Clone(w.Value), Changed: m.now(), Node: node,
		}
	}
	for _, a := range audits {
		m.audit(a)
	}
	m.changed.Send()
	return versions, nil
}

// Changed implements [store.Documents].
func (m documentPort) Changed() <-chan struct{} { return m.changed.Next() }
