package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/engine/store"

	"github.com/jackc/pgx/v5"
)

const (
	documentColumns = "select kind, name, version, value, changed, node from documents"
	findDocument    = documentColumns + " where kind = $1 and name = $2"
	listDocuments   = documentColumns + " where kind = $1 and name >= $2 and starts_with(name, $2) order by name"
	newDocument     = `insert into documents (kind, name, version, value, changed, node) values ($1, $2, 1, $3, clock_timestamp(), $4)
	on conflict do nothing returning version`
	nextDocument = `update documents set version = version + 1, value = $3, changed = clock_timestamp(), node = $4
	where kind = $1 and name = $2 and version = $5 returning version`
	// For those who overwrite what there is, such as what a balancer observed last: no version
	// is asked for, and it goes on from the one there is.
	anyDocument = `insert into documents as d (kind, name, version, value, changed, node) values ($1, $2, 1, $3, clock_timestamp(), $4)
	on conflict (kind, name) do update set version = d.version + 1, value = excluded.value, changed = excluded.changed, node = excluded.node
	returning version`
)

func scanDocument(r pgx.CollectableRow) (d store.Document, err error) {
	err = r.Scan(&d.Kind, &d.Name, &d.Version, &d.Value, &d.Changed, &d.Node)
	d.Changed = d.Changed.UTC()
	return d, err
}

// Document implements [store.Documents].
func (s *Store) Document(ctx context.Context, kind, name string) (store.Document, error) {
	rows, err := s.pool.Query(ctx, findDocument, kind, name)
	if err != nil {
		return store.Document{}, err
	}
	d, err := pgx.CollectExactlyOneRow(rows, scanDocument)
	if errors.Is(err, pgx.ErrNoRows) {
		err = store.ErrNotFound
	}
	return d, err
}

// Documents implements [store.Documents].
func (s *Store) Documents(ctx context.Context, kind, prefix string) ([]store.Document, error) {
	rows, err := s.pool.Query(ctx, listDocuments, kind, prefix)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanDocument)
}

// WriteDocuments implements [store.Documents]. Documents are locked in the order of
// their kinds and names.
func (s *Store) WriteDocuments(ctx context.Context, node int64, writes []store.DocumentWrite, audits []store.Audited) ([]int64, error) {
	order := make([]int, len(writes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(writes[a].Kind, writes[b].Kind), cmp.Compare(writes[a].Name, writes[b].Name))
	})
	var versions []int64
	err := s.tx(ctx, func(t *tx) error {
		versions = make([]int64, len(writes))
		clock := t.asNode(node)
		for _, i := range order {
			t.writeDocument(node, writes[i], &versions[i])
		}
		if err := t.send(ctx); err != nil {
			return err
		}
		if node != 0 && !clock.live {
			return store.ErrFenced
		}
		if slices.Contains(versions, 0) {
			return store.ErrConflict
		}
		if err := t.audit(ctx, audits...); err != nil {
			return err
		}
		return t.commit(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("write documents: %w", err)
	}
	s.changed.Send()
	signal(s.tellChanged)
	return versions, nil
}

// writeDocument queues one write; the version stays 0 when it is not to be.
func (t *tx) writeDocument(node int64, w store.DocumentWrite, version *int64) {
	sql, args := nextDocument, []any{w.Kind, w.Name, w.Value, node, w.Version}
	switch w.Version {
	case store.AnyVersion:
		sql, args = anyDocument, args[:4]
	case 0:
		sql, args = newDocument, args[:4]
	}
	t.queue(sql, args...).QueryRow(func(r pgx.Row) error {
		if err := r.Scan(version); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	})
}

// Changed implements [store.Documents].
func (s *Store) Changed() <-chan struct{} { return s.changed.Next() }

const (
	sendChanged   = "select pg_notify('procaas documents ' || left(current_schema, 40), '')"
	listenChanged = "select format('listen %I', 'procaas documents ' || left(current_schema, 40))"
)

// changedPrefix begins the channel on which processes tell that documents have
// changed.
const changedPrefix = "procaas documents "

// notifyChanged tells the other processes; those that are not told look again by
// themselves.
func (s *Store) notifyChanged(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.tellChanged:
		}
		if _, err := s.pool.Exec(ctx, sendChanged); err != nil && !pause(ctx, time.Second) {
			return
		}
		if !pause(ctx, hintGap) {
			return
		}
	}
}
