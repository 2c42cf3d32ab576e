package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine/api/transport"
	"procaas/engine/postgres"
	"procaas/engine/sqlite"
	"procaas/engine/store"
)

// openStore opens what a --store flag names: postgres://… or sqlite:FILE. With
// migrate it brings the schema up to date first.
func openStore(ctx context.Context, dsn string, migrate bool, log *slog.Logger) (store.Store, error) {
	if err := checkStore(dsn); err != nil {
		return nil, err
	}
	if isPostgres(dsn) {
		store, err := postgres.Open(ctx, dsn, postgres.Options{Migrate: migrate, Log: log})
		if err != nil {
			return nil, err
		}
		if err := refuseCell(ctx, store); err != nil {
			return nil, errors.Join(err, store.Close())
		}
		return store, nil
	}
	path, err := sqlitePath(dsn)
	if err != nil {
		return nil, err
	}
	return sqlite.Open(ctx, path, sqlite.Options{Migrate: migrate})
}

// checkStore says what is wrong with a --store flag, as far as that shows without
// opening anything.
func checkStore(dsn string) error {
	path, ok := strings.CutPrefix(dsn, "sqlite:")
	switch {
	case isPostgres(dsn), path != "" && ok:
		return nil
	case ok:
		return usagef("--store %q: want sqlite:FILE", dsn)
	}
	return usagef("--store %q: want postgres://… or sqlite:FILE", redact(dsn))
}

// checkStore says what is wrong with the flags that name databases.
func (f *nodeFlags) checkStore() error {
	if err := checkStore(f.store); err != nil {
		return err
	}
	_, err := f.namedCells()
	return err
}

// passwordParam is a password among the parameters of a DSN.
var passwordParam = regexp.MustCompile(`(?i)\b((?:ssl)?password)=[^&]*`)

// The pauses between attempts to reach a store that is away, and how often the log
// says that it still is.
const (
	firstTry  = 100 * time.Millisecond
	slowTry   = 2 * time.Second
	tellAgain = 30 * time.Second
)

// openStore opens the store of a node. A patient one waits for a store that is away,
// and says so meanwhile.
func (n *node) openStore(ctx context.Context) (store.Store, error) {
	f := n.flags
	began, told := time.Now(), time.Time{}
	for pause := firstTry; ; pause = min(2*pause, slowTry) {
		store, err := n.openCells(ctx)
		if err == nil && !told.IsZero() {
			n.log.Info("store is there", "after", time.Since(began).Round(time.Millisecond))
		}
		if err == nil || !f.patient || ctx.Err() != nil || !postgres.IsAway(err) {
			return store, err
		}
		if time.Since(told) >= tellAgain {
			n.log.Warn("store cannot be reached, trying again", "store", redact(f.store), "error", err)
			told = time.Now()
		}
		n.web.start(transport.Unready(version()))
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

func isPostgres(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// sqlitePath gives the file of an sqlite: DSN that checkStore has found right, and makes
// its directory.
func sqlitePath(dsn string) (string, error) {
	path := strings.TrimPrefix(dsn, "sqlite:")
	return path, os.MkdirAll(filepath.Dir(path), 0o700)
}

// redact hides the passwords of a DSN.
func redact(dsn string) string {
	scheme, rest, ok := strings.Cut(dsn, "://")
	if !ok {
		return dsn
	}
	rest = passwordParam.ReplaceAllString(rest, "$1=***")
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		return scheme + "://" + rest
	}
	user, _, _ := strings.Cut(rest[:at], ":")
	return scheme + "://" + user + "@" + rest[at+1:]
}

func migrateCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:     "migrate",
		Short:   "Bring the schema of a store up to date",
		Long:    "migrate creates or updates the tables of a store. Migrations only go forward,\nand several processes may run it at once: one does the work, the others wait.",
		Example: "  procaas migrate --store postgres://procaas@db/procaas",
		Args:    cobra.NoArgs,
	}
	store := c.Flags().String("store", "", "postgres://… or sqlite:FILE (required)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *store == "" {
			return usagef("migrate needs --store")
		}
		return migrate(c.Context(), s, *store)
	}
	return c
}

func migrate(ctx context.Context, s streams, dsn string) error {
	err := checkStore(dsn)
	if err != nil {
		return err
	}
	var from, to int64
	if isPostgres(dsn) {
		from, to, err = postgres.Migrate(ctx, dsn)
	} else {
		var path string
		if path, err = sqlitePath(dsn); err == nil {
			from, to, err = sqlite.Migrate(ctx, path)
		}
	}
	if err != nil {
		return fmt.Errorf("migrate %s: %w", redact(dsn), err)
	}
	if from == to {
		fmt.Fprintf(s.out, "schema is at version %d already\n", to)
		return nil
	}
	fmt.Fprintf(s.out, "schema migrated from version %d to %d\n", from, to)
	return nil
}
