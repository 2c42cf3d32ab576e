// Package stores opens what --store and --cell name: where runs and tasks are kept.
package stores

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

	"procaas/cmd/procaas/internal/cli"
	"procaas/engine/postgres"
	"procaas/engine/sqlite"
	"procaas/engine/store"
	"procaas/handlers/queue"
)

// Options say where a node keeps what it has.
type Options struct {
	DSN     string   // postgres://… or sqlite:FILE
	Cells   []string // NAME=postgres://…, besides DSN
	Migrate bool     // bring the schema up to date first
}

// Open opens the store of a node, with its cells if there are any.
func (o Options) Open(ctx context.Context, log *slog.Logger) (store.Store, error) {
	if err := o.Check(); err != nil {
		return store.Store{}, err
	}
	if len(o.Cells) > 0 {
		return o.openCells(ctx, log)
	}
	if IsPostgres(o.DSN) {
		db, err := o.openCell(ctx, o.DSN, log)
		if err != nil {
			return store.Store{}, err
		}
		if err := refuseCell(ctx, db); err != nil {
			return store.Store{}, errors.Join(err, db.Close())
		}
		return db.Store, nil
	}
	path, err := sqlitePath(o.DSN)
	if err != nil {
		return store.Store{}, err
	}
	db, err := sqlite.Open(ctx, path, sqlite.Options{Migrate: o.Migrate})
	if err != nil {
		return store.Store{}, err
	}
	return db.Ports(), nil
}

// Check says what is wrong with the flags that name databases, as far as that shows without
// opening anything.
func (o Options) Check() error {
	if err := checkDSN(o.DSN); err != nil {
		return err
	}
	_, err := o.namedCells()
	return err
}

// checkDSN says what is wrong with a --store flag.
func checkDSN(dsn string) error {
	path, ok := strings.CutPrefix(dsn, "sqlite:")
	switch {
	case IsPostgres(dsn), path != "" && ok:
		return nil
	case ok:
		return cli.Usagef("--store %q: want sqlite:FILE", dsn)
	}
	return cli.Usagef("--store %q: want postgres://… or sqlite:FILE", Redact(dsn))
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

// Await is Open, which waits for a store that is away; meanwhile it says so, and calls away.
func (o Options) Await(ctx context.Context, log *slog.Logger, away func()) (store.Store, error) {
	began, told := time.Now(), time.Time{}
	for pause := firstTry; ; pause = min(2*pause, slowTry) {
		db, err := o.Open(ctx, log)
		if err == nil && !told.IsZero() {
			log.Info("store is there", "after", time.Since(began).Round(time.Millisecond))
		}
		if err == nil || ctx.Err() != nil || !postgres.IsAway(err) {
			return db, err
		}
		if time.Since(told) >= tellAgain {
			log.Warn("store cannot be reached, trying again", "store", Redact(o.DSN), "error", err)
			told = time.Now()
		}
		away()
		if !cli.Sleep(ctx, pause) {
			return store.Store{}, ctx.Err()
		}
	}
}

// IsPostgres tells whether a DSN is one of PostgreSQL.
func IsPostgres(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// sqlitePath gives the file of an sqlite: DSN that checkDSN has found right, and makes
// its directory.
func sqlitePath(dsn string) (string, error) {
	path := strings.TrimPrefix(dsn, "sqlite:")
	return path, os.MkdirAll(filepath.Dir(path), 0o700)
}

// Redact hides the passwords of a DSN.
func Redact(dsn string) string {
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

// MigrateCommand brings a schema up to date.
func MigrateCommand() *cobra.Command {
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
			return cli.Usagef("migrate needs --store")
		}
		return migrate(c.Context(), cli.Of(c), *store)
	}
	return c
}

func migrate(ctx context.Context, s cli.Streams, dsn string) error {
	err := checkDSN(dsn)
	if err != nil {
		return err
	}
	var from, to int64
	if IsPostgres(dsn) {
		from, to, err = postgres.Migrate(ctx, dsn)
	} else {
		var path string
		if path, err = sqlitePath(dsn); err == nil {
			from, to, err = sqlite.Migrate(ctx, path)
		}
	}
	if err != nil {
		return fmt.Errorf("migrate %s: %w", Redact(dsn), err)
	}
	if from == to {
		return s.Printf("schema is at version %d already\n", to)
	}
	return s.Printf("schema migrated from version %d to %d\n", from, to)
}

// Describe says where a store is, for people.
func Describe(dsn string) string {
	if file, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		return file + " (SQLite)"
	}
	return Redact(dsn) + " (PostgreSQL)"
}

// Exists tells whether a store may hold what was made before.
func Exists(dsn string) bool {
	path, ok := strings.CutPrefix(dsn, "sqlite:")
	if !ok {
		return true
	}
	_, err := os.Stat(path)
	return err == nil
}

// Tasks are the queue of tasks of a node.
type Tasks struct {
	store.TaskStore
	Close func() error
}

// OpenTasks opens the queue of tasks in the same place as the runs.
func OpenTasks(ctx context.Context, dsn string, db store.Store, log *slog.Logger) (*Tasks, error) {
	if !IsPostgres(dsn) {
		if db.Tasks == nil {
			return nil, errors.New("the store keeps no tasks")
		}
		return &Tasks{db.Tasks, func() error { return nil }}, nil
	}
	tasks, err := queue.Open(ctx, dsn, queue.Options{Log: log})
	if err != nil {
		return nil, err
	}
	return &Tasks{tasks, tasks.Close}, nil
}
