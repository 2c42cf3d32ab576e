// Package sqlite keeps runs in one SQLite file: the embedded store.
package sqlite
