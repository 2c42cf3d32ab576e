// Package pipelines holds the flows that procaas ships with: the taxi company of
// the demo, and the engine's own services.
package pipelines

import "embed"

// Files are the pipelines and their stub services, a directory for each.
//
//go:embed all:taxi all:balancer
var Files embed.FS

// Recipes are flows to copy: README.md lists them, and each has its test beside it.
//
//go:embed recipes
var Recipes embed.FS
