package sqlstore

import (
	"errors"
	"fmt"
	"io/fs"
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
			digits, _, _ := strings.Cut(name, "_")
			version, err := strconv.ParseInt(digits, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("migration %s: want a number at the front", name)
			}
			h.Latest = max(h.Latest, version)
		}
	}
	return all, nil
}

// Versions reads the versions of all histories. It is 0 where the table is missing, because nothing was migrated yet. existing is a
// format for the statement that returns which of some tables exist, joined by commas.
func Versions(all []History, existing string, row func(sql string) interface{ Scan(...any) error }) ([]int64, error) {
	names := make([]string, len(all))
	for i, h := range all {
		names[i] = "'" + h.Table + "'"
	}
	var found, versions string
	if err := row(fmt.Sprintf(existing, strings.Join(names, ", "))).Scan(&found); err != nil || found == "" {
		return make([]int64, len(all)), err
	}
	sql := "select ''"
	for i, h := range all {
		version := "0"
		if strings.Contains(","+found+",", ","+h.Table+",") {
			version = "(select coalesce(max(version_id), 0) from " + h.Table + " where is_applied)"
		}
		if i > 0 {
			sql += " || ','"
		}
		sql += " || " + version
	}
	if err := row(sql).Scan(&versions); err != nil {
		return nil, err
	}
	have := make([]int64, len(all))
	for i, text := range strings.Split(versions, ",") {
		var err error
		if have[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, err
		}
	}
	return have, nil
}

// Check returns an error if tables are older or newer than this program. have are the versions of all histories. The error is
// [store.ErrOutdated] if none is newer.
func Check(all []History, have []int64) error {
	err := RefuseNewer(all, have)
	for i, h := range all {
		if err == nil && have[i] < h.Latest {
			return fmt.Errorf("%w %d%s, want %d: run procaas store migrate", store.ErrOutdated, have[i], h.forAddon(), h.Latest)
		}
	}
	return err
}

// Examine says in words what [Check] finds.
func Examine(all []History, have []int64) store.Check {
	const name = "tables"
	switch err := Check(all, have); {
	case have[0] == 0:
		return store.Check{Name: name, Level: store.CheckFine, Found: "none yet: the first node makes them, or procaas store migrate"}
	case errors.Is(err, store.ErrOutdated):
		return store.Check{Name: name, Level: store.CheckWarning, Found: err.Error(), Remedy: "stop older nodes, then run procaas store migrate"}
	case err != nil:
		return store.Check{Name: name, Level: store.CheckRefused, Found: err.Error(), Remedy: "use the program that made them, or a newer one"}
	}
	return store.Check{Name: name, Level: store.CheckFine, Found: fmt.Sprintf("schema has version %d", have[0])}
}

// RefuseNewer returns an error if tables are newer than this program.
func RefuseNewer(all []History, have []int64) error {
	for i, h := range all {
		if have[i] > h.Latest {
			return fmt.Errorf("schema has version %d%s, newer than %d, the last that this procaas knows: use a newer procaas",
				have[i], h.forAddon(), h.Latest)
		}
	}
	return nil
}

// forAddon names the add-on in messages.
func (h *History) forAddon() string {
	if h.Of == "" {
		return ""
	}
	return " for the " + h.Of
}
