// Package schemas holds the contracts as files: migrations, JSON Schema and OpenAPI.
//
// Migrations are numbered, go forward only, and are never changed once they are
// released: a change is a new file.
package schemas
