package sqlstore

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"procaas/engine/store"
)

// A History is a sequence of migrations, with its version in a table of its own.
type History struct {
	Of     string // the add-on whose tables they make; empty for the store itself
	Table  string // has the version
	Latest int64  // the last version that this program knows; 0 if there are no migrations
	Files  fs.FS  // nil for none
}

// Histories lists the migrations of a store, then those of its add-ons, in the order in which they are made. An add-on without
// migrations is listed too, so that a program that knows none refuses tables that a newer one has changed.
func Histories(own fs.FS, addons []store.Tables, of func(store.Tables) fs.FS) ([]History, error) {
	const table = "procaas_schema"
	all := []History{{Table: table, Files: own, Latest: HorizonVersion}}
	for _, t := range addons {
		all = append(all, History{Of: t.Name, Table: table + "_" + t.Name, Files: of(t)})
	}
	for i := range all {
		h := &all[i]
		if h.Files == nil {
			continue
		}
		names, err := fs.Glob(h.Files, "*.sql")
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			version, err := versionOf(name)
			if err != nil {
				return nil, err
			}
			h.Latest = max(h.Latest, version)
		}
	}
	return all, nil
}

// A Version says which migrations of a history the tables have.
type Version struct {
	Applied int64 // the last one
	Floor   int64 // the one that a program has to know in order to work with them
}

// FloorVersion is the version of the schema from which tables say who can work with them.
const FloorVersion = 86

// EncryptionVersion is the version of the schema that no program knows without knowing of encryption. It is the floor of encrypted tables: a
// program of an earlier release would take sealed values for payloads.
const EncryptionVersion = 89

// floors is the table that says it.
const floors = "schema_floor"

// SetFloor says which programs can work with tables up to a version. Its parameters are a history, the version, and its floor.
const SetFloor = `insert into schema_floor (history, version, floor) values ($1, $2, $3)
	on conflict (history) do update set version = excluded.version, floor = excluded.floor`

// Versions reads the versions of all histories. They are 0 where the table is missing, because nothing was migrated yet. existing is
// a format for the statement that returns which of some tables exist, joined by commas.
func Versions(all []History, existing string, row func(sql string) interface{ Scan(...any) error }) ([]Version, error) {
	var found, versions string
	if err := row(ListTables(all, existing)).Scan(&found); err != nil || found == "" {
		return make([]Version, len(all)), err
	}
	if err := row(SelectVersions(all, found)).Scan(&versions); err != nil {
		return nil, err
	}
	return ParseVersions(all, versions)
}

// ListTables returns the statement that lists which tables of versions exist. existing is its format, see [Versions].
func ListTables(all []History, existing string) string {
	names := "'" + floors + "'"
	for _, h := range all {
		names += ", '" + h.Table + "'"
	}
	return fmt.Sprintf(existing, names)
}

// SelectVersions returns the statement that reads the versions of all histories as a text for [ParseVersions]. found lists the tables
// that exist.
func SelectVersions(all []History, found string) string {
	exists := func(table string) bool { return strings.Contains(","+found+",", ","+table+",") }
	sql := "select ''"
	for i, h := range all {
		if i > 0 {
			sql += " || ','"
		}
		if !exists(h.Table) {
			sql += " || '0,0'"
			continue
		}
		floor := "v"
		if exists(floors) {
			floor = "coalesce((select floor from " + floors + " where history = '" + h.Of + "' and version >= v), v)"
		}
		sql += " || (select '' || v || ',' || " + floor + " from (select coalesce(max(version_id), 0) as v from " + h.Table +
			" where is_applied) as applied)"
	}
	return sql
}

// ParseVersions reads what [SelectVersions] selects.
func ParseVersions(all []History, text string) ([]Version, error) {
	have := make([]Version, len(all))
	for i, text := range strings.Split(text, ",") {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}
		if i%2 == 0 {
			have[i/2].Applied = n
		} else {
			have[i/2].Floor = n
		}
	}
	return have, nil
}

// worksWith is a line of a migration that only adds to the tables. Programs that know the version in it go on working with them.
var worksWith = regexp.MustCompile(`(?m)^-- procaas: works with (\d+)$`)

// Floor returns the floor of the tables when this program has migrated them.
func (h *History) Floor(have Version) (int64, error) {
	floor := have.Floor
	if h.Of == "" && have.Applied < HorizonVersion {
		floor = max(floor, HorizonVersion) // it is no file
	}
	if h.Files == nil {
		return floor, nil
	}
	names, err := fs.Glob(h.Files, "*.sql")
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		version, err := versionOf(name)
		if err != nil {
			return 0, err
		}
		if version <= have.Applied {
			continue
		}
		text, err := fs.ReadFile(h.Files, name)
		if err != nil {
			return 0, err
		}
		if m := worksWith.FindSubmatch(text); m != nil {
			if version, err = strconv.ParseInt(string(m[1]), 10, 64); err != nil {
				return 0, fmt.Errorf("migration %s: %w", name, err)
			}
		}
		floor = max(floor, version)
	}
	return floor, nil
}

func versionOf(name string) (int64, error) {
	digits, _, _ := strings.Cut(name, "_")
	version, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("migration %s: want a number at the front", name)
	}
	return version, nil
}

// Check returns an error if tables are older than this program, or newer and not for it. have are the versions of all histories. The
// error is [store.ErrOutdated] if none is newer.
func Check(all []History, have []Version) error {
	err := RefuseNewer(all, have)
	for i, h := range all {
		if err == nil && have[i].Applied < h.Latest {
			return fmt.Errorf("%w %d%s, want %d: run procaas store migrate", store.ErrOutdated, have[i].Applied, h.ForAddon(), h.Latest)
		}
	}
	return err
}

// Examine says in words what [Check] finds.
func Examine(all []History, have []Version) store.Check {
	const name = "tables"
	switch err := Check(all, have); {
	case have[0].Applied == 0:
		return store.Check{Name: name, Level: store.CheckFine, Found: "none yet: the first node makes them, or procaas store migrate"}
	case errors.Is(err, store.ErrOutdated):
		return store.Check{Name: name, Level: store.CheckWarning, Found: err.Error(), Remedy: migrationRemedy(all, have)}
	case err != nil:
		return store.Check{Name: name, Level: store.CheckRefused, Found: err.Error(), Remedy: "use the program that made them, or a newer one"}
	case have[0].Applied > all[0].Latest:
		return store.Check{Name: name, Level: store.CheckFine, Found: fmt.Sprintf("schema has version %d, of a newer release which this program "+
			"can work beside", have[0].Applied)}
	}
	return store.Check{Name: name, Level: store.CheckFine, Found: fmt.Sprintf("schema has version %d", have[0].Applied)}
}

// migrationRemedy says whether nodes have to stop before the tables become those of this program.
func migrationRemedy(all []History, have []Version) string {
	for i := range all {
		h := &all[i]
		floor, err := h.Floor(have[i])
		if err != nil || floor > have[i].Floor {
			return fmt.Sprintf("stop all nodes that do not know version %d%s, which are all of earlier releases; then run procaas store migrate",
				floor, h.ForAddon())
		}
	}
	return "run procaas store migrate, or start a node of this release: the new tables only add to the present ones, so nodes go on"
}

// RefuseNewer returns an error if tables are newer than this program and not for it.
func RefuseNewer(all []History, have []Version) error {
	for i, h := range all {
		if have[i].Applied > h.Latest && have[i].Floor > h.Latest {
			return fmt.Errorf("schema has version %d%s, newer than %d, the last that this procaas knows: use a newer procaas",
				have[i].Applied, h.ForAddon(), h.Latest)
		}
	}
	return nil
}

// ForAddon names the add-on in messages.
func (h *History) ForAddon() string {
	if h.Of == "" {
		return ""
	}
	return " for the " + h.Of
}
