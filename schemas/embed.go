package schemas

import "embed"

// SQLite holds the migrations of the embedded store, below sqlite/.
//
//go:embed sqlite/*.sql
var SQLite embed.FS
