package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"procaas/engine/sqlstore"
	"procaas/engine/store"
	"procaas/schemas"
)

const schemaTable = "procaas_schema"

// Migrate updates the schema at dsn, then the tables of add-ons, and returns the versions before and after, the schema's first. If
// several processes call it at once, one does the work. It changes nothing while nodes are alive that cannot work with the new tables.
func Migrate(ctx context.Context, dsn string, addons ...store.Tables) (done []store.Migration, err error) {
	config, pooled, err := prepareConfig(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	known, err := histories(addons)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	db := stdlib.OpenDB(*config.ConnConfig, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		if pooled { // the session is also somebody else's
			return nil
		}
		_, err := c.Exec(ctx, boundLocks)
		return err
	}))
	defer func() { err = errors.Join(err, db.Close()) }()
	var elsewhere, first string
	err = db.QueryRowContext(ctx, storeElsewhere).Scan(&elsewhere, &first)
	if err = misplaced(err, sql.ErrNoRows, elsewhere, first); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	for _, h := range known {
		if h.Latest == 0 {
			continue
		}
		m, err := migrate(ctx, db, h, known)
		if err != nil {
			return nil, fmt.Errorf("migrate: %w", err)
		}
		done = append(done, m)
	}
	return done, nil
}

// migrate makes the migrations of one history.
func migrate(ctx context.Context, db *sql.DB, h sqlstore.History, known []sqlstore.History) (store.Migration, error) {
	m := store.Migration{Of: h.Of}
	lock := &migrationLock{db: db, known: known}
	options := []goose.ProviderOption{
		goose.WithTableName(h.Table), goose.WithSessionLocker(lock), goose.WithDisableGlobalRegistry(true),
	}
	if h.Of == "" {
		options = append(options, goose.WithGoMigrations(
			goose.NewGoMigration(sqlstore.HorizonVersion, &goose.GoFunc{RunTx: adoptHorizon}, nil)))
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, h.Files, options...)
	if err != nil {
		return m, err
	}
	results, err := up(ctx, p)
	if err == nil && len(results) > 0 {
		err = lock.setFloor(ctx, &h)
	}
	if err != nil {
		return m, err
	}
	m.To, err = p.GetDBVersion(ctx)
	m.From = before(p.ListSources(), results, m.To)
	return m, err
}

// A change of a table waits for each transaction that uses the table, and whoever comes then waits behind it. So it gives up soon, lets
// the others through, and tries again.
const (
	boundLocks = "set lock_timeout = '1s'"
	lockTries  = 30
)

// up makes the migrations that are due.
func up(ctx context.Context, p *goose.Provider) (done []*goose.MigrationResult, err error) {
	for range lockTries {
		var more []*goose.MigrationResult
		more, err = p.Up(ctx)
		if failed, ok := errors.AsType[*goose.PartialError](err); ok {
			more = failed.Applied
		}
		done = append(done, more...)
		if code, ok := errors.AsType[*pgconn.PgError](err); !ok || code.Code != lockNotAvailable {
			return done, err
		}
	}
	return done, fmt.Errorf("another transaction uses a table for more than %d s: find it in pg_stat_activity, end it, and try again. "+
		"What was migrated stays, and the rest is not begun: %w", lockTries, err)
}

const lockNotAvailable = "55P03"

// before returns the version from which migrations led to another. The numbers of files have gaps.
func before(files []*goose.Source, done []*goose.MigrationResult, to int64) (from int64) {
	if len(done) == 0 {
		return to
	}
	for _, f := range files {
		if f.Version < done[0].Source.Version {
			from = max(from, f.Version)
		}
	}
	return from
}

// histories lists the migrations of the store and of add-ons.
func histories(addons []store.Tables) ([]sqlstore.History, error) {
	own, err := fs.Sub(schemas.Postgres, "postgres")
	if err != nil {
		return nil, err
	}
	return sqlstore.Histories(own, addons, func(t store.Tables) fs.FS { return t.Postgres })
}

// adoptHorizon is the migration that is no file; see [sqlstore.AdoptHorizon].
func adoptHorizon(ctx context.Context, t *sql.Tx) error {
	return sqlstore.AdoptHorizon(ctx, t, sqlstore.Horizon{
		Read:  "select audit_base, audit_base_hash, revision, clock_timestamp() from settings for update",
		Count: "update settings set revision = $1",
	})
}

// storeElsewhere returns the schemas if a store's tables are not in the schema where new tables
// would be created.
const storeElsewhere = `select n.nspname::text, current_schema()::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
	where c.oid = to_regclass('` + schemaTable + `') and n.nspname <> current_schema()`

// misplaced refuses such a store. If a role has the name of a schema, that schema comes first as
// soon as somebody creates it, as enrolling a shard does with procaas. A second, empty store would
// be created there, and the first one would be ignored.
func misplaced(err, none error, elsewhere, first string) error {
	if errors.Is(err, none) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("the store's tables are in the schema %s, but new ones would be made in %s, which comes first on the "+
		"search path of the role: "+
		"add search_path=%s to the address of the store, such as postgres://host/database?search_path=%s", elsewhere, first, elsewhere,
		elsewhere)
}

// existing is a statement for [sqlstore.Versions].
const existing = "select coalesce(string_agg(t, ','), '') from unnest(array[%s]) t where to_regclass(t) is not null"

// A querier is a connection, a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// versions reads the versions of the tables.
func versions(ctx context.Context, known []sqlstore.History, q querier) ([]sqlstore.Version, error) {
	return sqlstore.Versions(known, existing, func(sql string) interface{ Scan(...any) error } { return q.QueryRow(ctx, sql) })
}

// knows returns the versions that this program knows, by history, as JSON.
func (d *database) knows() (string, error) {
	all := map[string]int64{}
	for _, h := range d.known {
		all[h.Of] = h.Latest
	}
	text, err := json.Marshal(all)
	return string(text), err
}

func checkSchema(ctx context.Context, pool *pgxpool.Pool, known []sqlstore.History) error {
	var elsewhere, first string
	err := pool.QueryRow(ctx, storeElsewhere).Scan(&elsewhere, &first)
	if err := misplaced(err, pgx.ErrNoRows, elsewhere, first); err != nil {
		return err
	}
	have, err := versions(ctx, known, pool)
	if err != nil {
		return err
	}
	return sqlstore.Check(known, have)
}
