// Package pipelines has the pipelines that procaas ships: the taxi company of the demo, and the engine's own
// services.
package pipelines

import "embed"

// Files has the pipelines and their stub services, one directory each.
//
//go:embed all:taxi all:balancer all:sharding
var Files embed.FS

// Recipes has flows to copy, each with its test. README.md lists them.
//
//go:embed recipes
var Recipes embed.FS
