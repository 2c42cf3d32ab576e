package sqlite_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"procaas/engine/enginetest/conformance"
	"procaas/engine/sqlite"
	"procaas/engine/store"
)

// damaged opens an empty store whose rows can be changed by hand.
func damaged(t *testing.T) (store.Store, conformance.Damager) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return s.Ports(), func(id, column string, value []byte) {
		arg := any(value)
		if column == "bundle" {
			arg = string(value)
		}
		if _, err := db.ExecContext(t.Context(), fmt.Sprintf("update runs set %s = ? where id = ?", column), arg, id); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADamagedRowStopsOnlyItself(t *testing.T) {
	t.Parallel()
	db, damage := damaged(t)
	conformance.Damage(t, db, damage)
}

func TestADamagedEventDoesNotHideOthers(t *testing.T) {
	t.Parallel()
	db, damage := damaged(t)
	conformance.DamagedAwait(t, db, damage)
}

// A page of a table has several rows. A long row has pages of its own, too.
func TestADamagedPageStopsOnlyItsRows(t *testing.T) {
	t.Parallel()
	const pageSize = 4096
	const leaf, overflow = 0x0d, 0x00 // the first byte of a page
	for name, of := range map[string]struct {
		kind  byte
		stuck int
	}{"its own page": {overflow, 1}, "a page of the table": {leaf, 10}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "store.db")
			var s *sqlite.Store
			conformance.DamagedPage(t, func() store.Store { s = open(t, path); return s.Ports() }, func(text string) {
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				damaged := 0
				for page := range slices.Chunk(data, pageSize) {
					if page[0] == of.kind && damaged == 0 && bytes.Contains(page, []byte(text)) {
						copy(page, bytes.Repeat([]byte{0xa5}, pageSize))
						damaged++
					}
				}
				if damaged == 0 {
					t.Fatalf("no page of the kind %#x has %q", of.kind, text)
				}
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}, of.stuck)
		})
	}
}
