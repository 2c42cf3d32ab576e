package store

import "io/fs"

// Tables are the migrations of an add-on, for each kind of store. They are a sequence of their own, whose version is in the table
// procaas_schema_NAME. It comes after the migrations of the store itself, so it finds all tables that those make.
type Tables struct {
	Name string // of the add-on

	// Postgres and SQLite have files like those of the store itself, such as 0001_name.sql. Nil has none. A file is applied as a
	// whole or not at all.
	Postgres, SQLite fs.FS
}

// A Migration says from which version to which tables were brought.
type Migration struct {
	Of       string // the add-on; empty for the store itself
	From, To int64
}
