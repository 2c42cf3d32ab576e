package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/serve/stores"
	"procaas/dsl"
	"procaas/dsl/tree"
	"procaas/engine/api/cli"
	"procaas/engine/definitions"
	"procaas/engine/pgkit"
	"procaas/engine/store"
)

// insteadOfFiles returns what a node serves whose files have errors, which were printed. It is nil if there is nothing.
// So a restart is no outage because somebody has saved a file too early.
func (f *Flags) insteadOfFiles(ctx context.Context, s cli.Streams) *tree.Bundle {
	b, err := f.stored(ctx)
	if err != nil {
		fmt.Fprintf(s.Err, "procaas: the store cannot say what to serve instead: %v\n", err)
	}
	return b
}

// deployed returns what a node without files serves: what is current in the store, or else nothing until a deployment.
func (f *Flags) deployed(ctx context.Context) (*tree.Bundle, error) {
	f.Pipelines = nil
	b, err := f.stored(ctx)
	if b == nil && err == nil {
		b, _ = dsl.Load(nil, dsl.Options{Language: addons.Language(), Types: addons.Types()})
	}
	return b, err
}

// stored reads the definition that the nodes of the store serve. It is nil if the store has none.
func (f *Flags) stored(ctx context.Context) (b *tree.Bundle, err error) {
	if !stores.Exists(f.Store) {
		return nil, nil
	}
	var db store.Store
	o, err := f.Stores()
	if err == nil {
		db, err = o.Open(ctx, slog.New(slog.DiscardHandler))
	}
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", pgkit.Redact(f.Store), err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	hash, err := db.Bundles.Current(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l := definitions.Library{Store: db.Bundles, Language: addons.Language(), Types: addons.Types(), Services: f.Services}
	return l.Read(ctx, hash)
}
