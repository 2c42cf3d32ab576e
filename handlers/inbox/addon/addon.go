// Package addon plugs the inbox over several databases into procaas.
package addon

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"procaas/engine"
	"procaas/engine/addon"
	"procaas/engine/api"
	"procaas/engine/api/cli"
	"procaas/engine/api/ui"
	"procaas/engine/pgkit"
	"procaas/engine/store"
	"procaas/handlers/inbox"
	inboxapi "procaas/handlers/inbox/api"
	"procaas/handlers/inbox/cells"
	"procaas/handlers/inbox/console"
)

// New returns the add-on.
func New() addon.Addon {
	return addon.Addon{
		Name: "inbox", Problems: inboxapi.Problems(), New: newProcess, ServeHelp: cellHelp,
		Commands: func(addon.Tools) []addon.Command { return []addon.Command{{Command: inboxCommand()}} },
	}
}

const cellHelp = `With --cell the inbox spreads over several PostgreSQL servers, and --store is the
home. procaas inbox shows which server has which keys, and moves keys. While a server
is down, its keys wait and /readyz names it. Keys of other servers continue.`

// A process is the inbox of one process.
type process struct {
	flags []string    // NAME=postgres://…, in addition to the store of the node
	cells inbox.Cells // nil before open, and if the inbox has one database
}

func newProcess() *addon.Process {
	p := &process{}
	return &addon.Process{ServeFlags: p.serveFlags, Spread: p.spread, Open: p.open, Calls: p.calls, Pages: p.pages}
}

func (p *process) serveFlags(on *pflag.FlagSet) {
	on.StringArrayVar(&p.flags, "cell", nil, "another PostgreSQL for the inbox, in addition to --store: NAME=postgres://… "+
		"(repeatable; the same on all nodes)")
}

// spread returns how to open the store with the cells of the flags.
func (p *process) spread(home string) (addon.Spread, error) {
	if len(p.flags) == 0 {
		return nil, nil
	}
	named, err := p.named(home)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, one func(context.Context, string) (*store.Cell, error), log *slog.Logger) (store.Store, error) {
		all := cells.Options{Log: log, Cells: map[string]func(context.Context) (*store.Cell, error){}}
		for name, dsn := range named {
			all.Cells[name] = func(ctx context.Context) (*store.Cell, error) { return one(ctx, dsn) }
		}
		first, err := one(ctx, home)
		if err != nil {
			return store.Store{}, err
		}
		all.Home = first
		s, err := cells.Open(ctx, all)
		if err != nil {
			return store.Store{}, errors.Join(err, first.Close())
		}
		return s.Ports(), nil
	}, nil
}

// named parses the flags: databases by the names of their cells.
func (p *process) named(home string) (map[string]string, error) {
	if !pgkit.IsDSN(home) {
		return nil, cli.Usagef("--cell needs a --store that is postgres://…, have %q", pgkit.Redact(home))
	}
	named := map[string]string{}
	for _, cell := range p.flags {
		name, dsn, ok := strings.Cut(cell, "=")
		switch {
		case !ok || name == "" || !pgkit.IsDSN(dsn):
			return nil, cli.Usagef("--cell %q: want NAME=postgres://…", pgkit.Redact(cell))
		case name == cells.Home || named[name] != "":
			return nil, cli.Usagef("--cell %s: the name is taken; --store is the cell %s", name, cells.Home)
		case dsn == home:
			return nil, cli.Usagef("--cell %s: the database is that of --store", name)
		}
		named[name] = dsn
	}
	return named, nil
}

func (p *process) open(_ context.Context, h *addon.Host) (*addon.Part, error) {
	divided, ok := h.Store.Scattered.(inbox.Cells)
	if !ok {
		return &addon.Part{}, nil
	}
	p.cells = divided
	h.Metrics.MustRegister(&metrics{cells: divided})
	return &addon.Part{}, nil
}

func (p *process) pages(*engine.Engine) []ui.Page { return console.Pages(p.cells) }

func (p *process) calls(*engine.Engine) api.Group { return inboxapi.Calls(p.cells) }
