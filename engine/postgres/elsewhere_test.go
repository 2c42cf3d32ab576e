package postgres_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/postgres"
)

// A schema that comes first on the search path since, such as that of the fences for a role of its name, does not
// become a second store: the first one would be forgotten without a word.
func TestStoreIsNotMadeTwiceInADatabase(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	if _, err := postgres.Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	schema := q.Get("search_path")
	q.Set("search_path", schema+"_later,"+schema)
	u.RawQuery = q.Encode()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	// As long as there is no such schema, the path says nothing else.
	if _, err := postgres.Migrate(t.Context(), u.String()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exec(t.Context(), "create schema "+schema+"_later"); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = c.Exec(t.Context(), "drop schema "+schema+"_later cascade") }()
	_, migrated := postgres.Migrate(t.Context(), u.String())
	store, opened := postgres.Open(t.Context(), u.String(), postgres.Options{})
	if opened == nil {
		defer store.Close()
	}
	for what, err := range map[string]error{"migrate": migrated, "open": opened} {
		if err == nil || !strings.Contains(err.Error(), "add search_path="+schema+" to the address of the store") {
			t.Errorf("%s: have %v, want a refusal that says where the tables are", what, err)
		}
	}
}
