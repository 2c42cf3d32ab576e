// Package schemas has the contracts as files: migrations, JSON Schema and OpenAPI.
//
// Migrations are numbered and only go forward. A released migration never changes: a change is a new file.
package schemas
