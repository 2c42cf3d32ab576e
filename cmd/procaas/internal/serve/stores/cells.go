package stores

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"procaas/engine/api/cli"
	"procaas/engine/cells"
	"procaas/engine/postgres"
	"procaas/engine/store"
	"procaas/handlers/queue"
)

// namedCells parses the --cell flags: databases by the names of their cells.
func (o Options) namedCells() (map[string]string, error) {
	if len(o.Cells) > 0 && !IsPostgres(o.DSN) {
		return nil, cli.Usagef("--cell needs a --store that is postgres://…, have %q", Redact(o.DSN))
	}
	named := map[string]string{}
	for _, cell := range o.Cells {
		name, dsn, ok := strings.Cut(cell, "=")
		switch {
		case !ok || name == "" || !IsPostgres(dsn):
			return nil, cli.Usagef("--cell %q: want NAME=postgres://…", Redact(cell))
		case name == cells.Home || named[name] != "":
			return nil, cli.Usagef("--cell %s: the name is taken; --store is the cell %s", name, cells.Home)
		case dsn == o.DSN:
			return nil, cli.Usagef("--cell %s: the database is that of --store", name)
		}
		named[name] = dsn
	}
	return named, nil
}

// openCells opens the store of a node with the cells of the flags.
func (o Options) openCells(ctx context.Context, log *slog.Logger) (store.Store, error) {
	named, err := o.namedCells()
	if err != nil {
		return store.Store{}, err
	}
	all := cells.Options{Log: log, Cells: map[string]func(context.Context) (*store.Cell, error){}}
	for name, dsn := range named {
		all.Cells[name] = func(ctx context.Context) (*store.Cell, error) { return o.openPostgres(ctx, dsn, true, log) }
	}
	home, err := o.openPostgres(ctx, o.DSN, true, log)
	if err != nil {
		return store.Store{}, err
	}
	all.Home = home
	s, err := cells.Open(ctx, all)
	if err != nil {
		return store.Store{}, errors.Join(err, home.Close())
	}
	return s.Ports(), nil
}

// openPostgres opens a database: a cell, or the only one.
func (o Options) openPostgres(ctx context.Context, dsn string, cell bool, log *slog.Logger) (*store.Cell, error) {
	db, err := postgres.Open(ctx, dsn, postgres.Options{Migrate: o.Migrate, Cell: cell, Log: log})
	if err != nil {
		return nil, err
	}
	c := db.Cell()
	return c, queue.Attach(ctx, c, dsn, queue.Options{Log: log})
}
