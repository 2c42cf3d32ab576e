package engine

import "embed"

// Guarantees has GUARANTEES.md: what the engine promises, and the tests of it.
//
//go:embed GUARANTEES.md
var Guarantees embed.FS
