// Package schemas holds the contracts as files: migrations, JSON Schema and OpenAPI.
package schemas
