package postgres

import (
	"context"
	"database/sql"
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

// Migrate updates the schema at dsn, and returns the versions before and after. If several
// processes call it at once, one does the work. It changes nothing while nodes are alive.
func Migrate(ctx context.Context, dsn string) (from, to int64, err error) {
	config, _, err := prepareConfig(ctx, dsn)
	if err != nil {
		return 0, 0, fmt.Errorf("migrate: %w", err)
	}
	db := stdlib.OpenDB(*config.ConnConfig)
	defer func() { err = errors.Join(err, db.Close()) }()
	var elsewhere, first string
	err = db.QueryRowContext(ctx, storeElsewhere).Scan(&elsewhere, &first)
	if err = misplaced(err, sql.ErrNoRows, elsewhere, first); err != nil {
		return 0, 0, fmt.Errorf("migrate: %w", err)
	}
	p, err := migrations(db)
	if err != nil {
		return 0, 0, fmt.Errorf("migrate: %w", err)
	}
	results, err := p.Up(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("migrate: %w", err)
	}
	to, err = p.GetDBVersion(ctx)
	return before(p.ListSources(), results, to), to, err
}

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

func migrations(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(schemas.Postgres, "postgres")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName(schemaTable),
		goose.WithSessionLocker(&migrationLock{db: db}), goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(goose.NewGoMigration(sqlstore.HorizonVersion, &goose.GoFunc{RunTx: adoptHorizon}, nil)))
}

// adoptHorizon is the migration that is no file; see [sqlstore.AdoptHorizon].
func adoptHorizon(ctx context.Context, t *sql.Tx) error {
	return sqlstore.AdoptHorizon(ctx, t, sqlstore.Horizon{
		Read:  "select audit_base, audit_base_hash, revision, clock_timestamp() from settings for update",
		Count: "update settings set revision = $1",
	})
}

// latestSchema returns the version that this program knows.
func latestSchema() (int64, error) {
	files, err := fs.ReadDir(schemas.Postgres, "postgres")
	if err != nil {
		return 0, err
	}
	last, err := goose.NumericComponent(files[len(files)-1].Name())
	return max(last, sqlstore.HorizonVersion), err
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

const schemaVersion = "select coalesce(max(version_id), 0) from " + schemaTable + " where is_applied"

func checkSchema(ctx context.Context, pool *pgxpool.Pool) error {
	want, err := latestSchema()
	if err != nil {
		return err
	}
	var elsewhere, first string
	err = pool.QueryRow(ctx, storeElsewhere).Scan(&elsewhere, &first)
	if err := misplaced(err, pgx.ErrNoRows, elsewhere, first); err != nil {
		return err
	}
	var have int64
	err = pool.QueryRow(ctx, schemaVersion).Scan(&have)
	var code *pgconn.PgError
	if errors.As(err, &code) && code.Code == "42P01" { // undefined_table: never migrated
		err = nil
	}
	switch {
	case err != nil:
		return err
	case have < want:
		return fmt.Errorf("%w %d, want %d: run procaas store migrate", store.ErrOutdated, have, want)
	}
	return refuseNewer(have, want)
}
