// Package stores opens the databases of --store.
package stores

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/engine/addon"
	"procaas/engine/api/cli"
	"procaas/engine/clock"
	"procaas/engine/pgkit"
	"procaas/engine/postgres"
	"procaas/engine/sealed"
	"procaas/engine/sqlite"
	"procaas/engine/store"
)

// Options choose the databases of a node.
type Options struct {
	DSN     string       // postgres://… or sqlite:FILE
	Spread  addon.Spread // opens DSN as one of several databases; nil if it is the only one
	Migrate bool         // update the schema first
	Keys    string       // file of key-encryption keys; empty: the store is not encrypted

	// Attach adds ports of add-ons to each database that is opened in PostgreSQL. See [addon.Process].
	Attach []func(ctx context.Context, c *store.Cell, dsn string, log *slog.Logger) error
}

// Open opens the store of a node.
func (o Options) Open(ctx context.Context, log *slog.Logger) (store.Store, error) {
	if err := o.Check(); err != nil {
		return store.Store{}, err
	}
	ring := &sealed.Ring{File: o.Keys, Log: log}
	if o.Spread != nil {
		return o.Spread(ctx, func(ctx context.Context, dsn string) (*store.Cell, error) {
			return o.openPostgres(ctx, dsn, true, ring)
		}, log)
	}
	if pgkit.IsDSN(o.DSN) {
		db, err := o.openPostgres(ctx, o.DSN, false, ring)
		if err != nil {
			return store.Store{}, err
		}
		return db.Store, nil
	}
	k, at, _ := kindOf(o.DSN)
	s, err := k.open(ctx, at, o.Migrate)
	if err == nil {
		if err = ring.Store(ctx, &s); err != nil {
			return store.Store{}, errors.Join(asUsage(err), s.Close())
		}
	}
	return s, err
}

// A kind is a kind of store other than PostgreSQL. Only PostgreSQL can have cells.
type kind struct {
	name    string // for messages
	prefix  string // of its DSNs
	at      string // placeholder after the prefix, for messages; empty for none
	open    func(ctx context.Context, at string, migrate bool) (store.Store, error)
	migrate func(ctx context.Context, at string) ([]store.Migration, error) // nil if the schema is temporary
}

// kinds returns all kinds.
func kinds() []kind {
	return []kind{
		{name: "SQLite", prefix: "sqlite:", at: "FILE", open: openSQLite, migrate: migrateSQLite},
	}
}

// kindOf returns the kind of a DSN, and the rest of the DSN.
func kindOf(dsn string) (found kind, at string, ok bool) {
	for _, k := range kinds() {
		if at, ok := strings.CutPrefix(dsn, k.prefix); ok {
			return k, at, true
		}
	}
	return kind{}, "", false
}

func openSQLite(ctx context.Context, path string, migrate bool) (store.Store, error) {
	if err := makeDir(path); err != nil {
		return store.Store{}, err
	}
	db, err := sqlite.Open(ctx, path, sqlite.Options{Migrate: migrate, Addons: addons.Tables()})
	if err != nil {
		return store.Store{}, err
	}
	return db.Ports(), nil
}

// makeDir makes the directory of a file.
func makeDir(path string) error {
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; want --store sqlite:FILE in a directory that this user may write to", err)
}

func migrateSQLite(ctx context.Context, path string) ([]store.Migration, error) {
	if err := makeDir(path); err != nil {
		return nil, err
	}
	return sqlite.Migrate(ctx, path, addons.Tables()...)
}

func migratePostgres(ctx context.Context, dsn string) ([]store.Migration, error) {
	return postgres.Migrate(ctx, dsn, addons.Tables()...)
}

// openPostgres opens a database: a cell, or the only one.
func (o Options) openPostgres(ctx context.Context, dsn string, cell bool, ring *sealed.Ring) (*store.Cell, error) {
	db, err := postgres.Open(ctx, dsn, postgres.Options{Migrate: o.Migrate, Addons: addons.Tables(), Cell: cell, Log: ring.Log})
	if err != nil {
		return nil, err
	}
	c := db.Cell()
	for _, attach := range o.Attach {
		if err := attach(ctx, c, dsn, ring.Log); err != nil {
			return nil, err
		}
	}
	if err := ring.Cell(ctx, c); err != nil {
		return nil, errors.Join(asUsage(err), c.Close())
	}
	return c, nil
}

// Check returns what is wrong with DSN, without opening anything.
func (o Options) Check() error { return checkDSN(o.DSN) }

// checkDSN returns what is wrong with a --store flag.
func checkDSN(dsn string) error {
	k, at, ok := kindOf(dsn)
	switch {
	case dsn == "":
		return cli.Usagef("want --store postgres://… or --store sqlite:FILE")
	case pgkit.IsDSN(dsn), ok && (at == "") == (k.at == ""):
		return nil
	case ok:
		return cli.Usagef("--store %q: want %s%s", dsn, k.prefix, k.at)
	}
	want := "postgres://…"
	for _, k := range kinds() {
		want += " or " + k.prefix + k.at
	}
	return cli.Usagef("--store %q: want %s", pgkit.Redact(dsn), want)
}

// The pauses between attempts to reach the store, and between lines of the log about it.
const (
	firstTry  = 100 * time.Millisecond
	slowTry   = 2 * time.Second
	tellAgain = 30 * time.Second
)

// Await is Open, but waits for an unreachable store. Meanwhile it logs, and calls away.
func (o Options) Await(ctx context.Context, log *slog.Logger, away func()) (store.Store, error) {
	began, told := time.Now(), time.Time{}
	backoff := clock.Backoff{First: firstTry, Most: slowTry}
	for {
		db, err := o.Open(ctx, log)
		if err == nil && !told.IsZero() {
			log.Info("store is there", "after", time.Since(began).Round(time.Millisecond))
		}
		if err == nil || ctx.Err() != nil || !postgres.IsAway(err) {
			return db, err
		}
		if time.Since(told) >= tellAgain {
			log.Warn("store cannot be reached, trying again", "store", pgkit.Redact(o.DSN), "error", err)
			told = time.Now()
		}
		away()
		if !backoff.Pause(ctx) {
			return store.Store{}, ctx.Err()
		}
	}
}

// Commands returns the commands for stores.
func Commands() []*cobra.Command {
	group := &cobra.Command{Use: "store", Short: "Check a store, back it up, adopt a restored one, encrypt it, and update its schema"}
	group.AddCommand(migrateCommand(), checkCommand(), backupCommand(), adoptCommand(), keysCommand())
	old := migrateCommand()
	old.Hidden = true
	old.Short += ": now store migrate"
	old.Long = "procaas migrate is the earlier name of procaas store migrate.\n\n" + old.Long
	return []*cobra.Command{group, old}
}

// migrateCommand updates a schema.
func migrateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Update the schema of a store",
		Long: "migrate creates or updates the tables of a store. It cannot go back to an older\nschema. Several processes may " +
			"run it at once: one does the work, the others wait.\n\nWhile older nodes are alive, migrate changes nothing and names them. " +
			"Stop them first.\n\nTo move runs to the present pipelines, use procaas runs migrate.",
		Example: "  procaas store migrate --store postgres://procaas@db/procaas",
		Args:    cobra.NoArgs,
	}
	dsn := storeFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error { return migrate(c.Context(), cli.Of(c), *dsn) }
	return c
}

// storeFlag adds the flag that names a store.
func storeFlag(c *cobra.Command) *string {
	return c.Flags().String("store", "", "postgres://… or sqlite:FILE (required)")
}

func migrate(ctx context.Context, s cli.Streams, dsn string) error {
	if err := checkDSN(dsn); err != nil {
		return err
	}
	bring, at := migratePostgres, dsn
	if k, rest, ok := kindOf(dsn); ok {
		bring, at = k.migrate, rest
	}
	if bring == nil {
		return cli.Usagef("--store %s has no schema to bring up to date", dsn)
	}
	done, err := bring(ctx, at)
	if err != nil {
		return fmt.Errorf("migrate %s: %w", pgkit.Redact(dsn), err)
	}
	for _, m := range done {
		what := "schema"
		if m.Of != "" {
			what = "tables for the " + m.Of
		}
		said := fmt.Sprintf("%s is at version %d already\n", what, m.To)
		if m.From != m.To {
			said = fmt.Sprintf("%s migrated from version %d to %d\n", what, m.From, m.To)
		}
		if err := s.Printf("%s", said); err != nil {
			return err
		}
	}
	return nil
}

// Describe describes a store for messages.
func Describe(dsn string) string {
	if k, at, ok := kindOf(dsn); ok {
		return at + " (" + k.name + ")"
	}
	return pgkit.Redact(dsn) + " (PostgreSQL)"
}

// Exists reports whether a store may contain earlier data.
func Exists(dsn string) bool {
	path, ok := strings.CutPrefix(dsn, "sqlite:")
	if !ok {
		return true
	}
	_, err := os.Stat(path)
	return err == nil
}
