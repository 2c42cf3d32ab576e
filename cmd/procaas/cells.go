package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"procaas/engine/cells"
	"procaas/engine/postgres"
	"procaas/engine/store"
)

// refuseCell refuses to work on one database of an inbox as if it were all of it.
func refuseCell(ctx context.Context, store store.Cell) error {
	b, err := store.EnrolledAs(ctx)
	switch {
	case err != nil:
		return err
	case b.Name == cells.Home:
		return errors.New("the inbox is spread over several databases, of which this is the home: name the others by --cell NAME=postgres://…")
	case b.Name != "":
		return fmt.Errorf("the database is cell %s of an inbox over several databases: give that of its home as --store, and this one as "+
			"--cell %s=…", b.Name, b.Name)
	}
	return nil
}

// namedCells reads the --cell flags: the databases by the names of their cells.
func (f *nodeFlags) namedCells() (map[string]string, error) {
	if len(f.cells) > 0 && !isPostgres(f.store) {
		return nil, usagef("--cell needs a --store that is postgres://…, have %q", redact(f.store))
	}
	named := map[string]string{}
	for _, cell := range f.cells {
		name, dsn, ok := strings.Cut(cell, "=")
		switch {
		case !ok || name == "" || !isPostgres(dsn):
			return nil, usagef("--cell %q: want NAME=postgres://…", redact(cell))
		case name == cells.Home || named[name] != "":
			return nil, usagef("--cell %s: the name is taken; --store is the cell %s", name, cells.Home)
		case dsn == f.store:
			return nil, usagef("--cell %s: the database is that of --store", name)
		}
		named[name] = dsn
	}
	return named, nil
}

// openCells opens the store of a node, with the cells that flags name.
func (n *node) openCells(ctx context.Context) (store.Store, error) {
	f := n.flags
	if len(f.cells) == 0 {
		return openStore(ctx, f.store, f.migrate, n.log)
	}
	named, err := f.namedCells()
	if err != nil {
		return nil, err
	}
	o := cells.Options{Log: n.log, Cells: map[string]func(context.Context) (store.Cell, error){}}
	for name, dsn := range named {
		o.Cells[name] = func(ctx context.Context) (store.Cell, error) { return n.openCell(ctx, dsn) }
	}
	home, err := n.openCell(ctx, f.store)
	if err != nil {
		return nil, err
	}
	o.Home = home
	s, err := cells.Open(ctx, o)
	if err != nil {
		return nil, errors.Join(err, home.Close())
	}
	return s, nil
}

func (n *node) openCell(ctx context.Context, dsn string) (store.Cell, error) {
	return postgres.Open(ctx, dsn, postgres.Options{Migrate: n.flags.migrate, Log: n.log})
}
